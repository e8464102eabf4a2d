package serving

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestGuards: an operation that takes too long is cut once, after a pause where there is one;
// what has ended, and what begins after the end of the guard, is not.
func TestGuards(t *testing.T) {
	const limit = 10 * moment
	for name, tc := range map[string]struct {
		pauses     bool
		do         func(g *guard)
		cut, pause int
	}{
		"one that ends": {true, func(g *guard) { g.begin(limit); time.Sleep(moment / 2); g.end() }, 0, 0},
		"one that lasts": {true, func(g *guard) {
			g.begin(limit)
			time.Sleep(limit - 1)
			if !g.end() {
				t.Error("it did not pause")
			}
		}, 0, 1},
		"one that is too long":                     {true, func(g *guard) { g.begin(limit) }, 1, 1},
		"one that is too long and not heard":       {false, func(g *guard) { g.begin(limit) }, 1, 0},
		"one whose limit is shorter than a moment": {true, func(g *guard) { g.begin(moment / 2) }, 1, 0},
		"none":              {true, func(g *guard) { g.end(); g.close() }, 0, 0},
		"after the end":     {true, func(g *guard) { g.close(); g.begin(limit) }, 0, 0},
		"during the end":    {true, func(g *guard) { g.begin(limit); g.close() }, 0, 0},
		"the second of two": {true, func(g *guard) { g.begin(limit); time.Sleep(2 * moment); g.end(); g.begin(limit) }, 1, 2},
		"a timer that fires when its operation has ended": {true, func(g *guard) {
			g.begin(moment)
			time.Sleep(moment / 2)
			g.end()
			time.Sleep(moment)
			g.fire()
		}, 0, 0},
		"a timer that fires when the next one has begun": {false, func(g *guard) {
			g.begin(limit)
			g.fire()
			g.end()
		}, 0, 0},
		"a timer that fires in the pause": {true, func(g *guard) {
			g.begin(limit)
			time.Sleep(2 * moment)
			g.fire()
			g.end()
		}, 0, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			cuts, pauses := 0, 0
			g := &guard{overdue: func(bool) time.Duration { cuts++; return 0 }}
			if tc.pauses {
				g.pause = func() { pauses++ }
			}
			tc.do(g)
			time.Sleep(2 * limit)
			synctest.Wait()
			if cuts != tc.cut || pauses != tc.pause {
				t.Errorf("%s: cut %d times after %d pauses, want %d and %d", name, cuts, pauses, tc.cut, tc.pause)
			}
			g.close()
		})
	}
}
