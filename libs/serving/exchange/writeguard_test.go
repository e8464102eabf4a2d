package exchange

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestGuardAbortsSlowOperation checks that a slow operation is suspended and then aborted once.
// Ended operations, and operations of a disabled timer, are not aborted.
func TestGuardAbortsSlowOperation(t *testing.T) {
	const limit = 10 * slowWriteAfter
	for name, tc := range map[string]struct {
		pauses     bool
		do         func(g *operationTimer)
		cut, pause int
	}{
		"short": {
			pauses: true,
			do:     func(g *operationTimer) { g.start(limit); time.Sleep(slowWriteAfter / 2); g.stop() },
			cut:    0,
			pause:  0,
		},
		"slow": {pauses: true, do: func(g *operationTimer) {
			g.start(limit)
			time.Sleep(limit - 1)
			if !g.stop() {
				t.Error("stop() just before the limit = false, want true")
			}
		}, cut: 0, pause: 1},
		"too long":                      {pauses: true, do: func(g *operationTimer) { g.start(limit) }, cut: 1, pause: 1},
		"too long, no suspend function": {pauses: false, do: func(g *operationTimer) { g.start(limit) }, cut: 1, pause: 0},
		"limit shorter than slowWriteAfter": {
			pauses: true,
			do:     func(g *operationTimer) { g.start(slowWriteAfter / 2) },
			cut:    1,
			pause:  0,
		},
		"no operation":           {pauses: true, do: func(g *operationTimer) { g.stop(); g.disable() }, cut: 0, pause: 0},
		"start after close":      {pauses: true, do: func(g *operationTimer) { g.disable(); g.start(limit) }, cut: 0, pause: 0},
		"close during operation": {pauses: true, do: func(g *operationTimer) { g.start(limit); g.disable() }, cut: 0, pause: 0},
		"second operation": {
			pauses: true,
			do:     func(g *operationTimer) { g.start(limit); time.Sleep(2 * slowWriteAfter); g.stop(); g.start(limit) },
			cut:    1,
			pause:  2,
		},
		"timer fires after the operation": {pauses: true, do: func(g *operationTimer) {
			g.start(slowWriteAfter)
			time.Sleep(slowWriteAfter / 2)
			g.stop()
			time.Sleep(slowWriteAfter)
			g.timerFired()
		}, cut: 0, pause: 0},
		"timer fires in the next operation": {pauses: false, do: func(g *operationTimer) {
			g.start(limit)
			g.timerFired()
			g.stop()
		}, cut: 0, pause: 0},
		"timer fires after suspend": {pauses: true, do: func(g *operationTimer) {
			g.start(limit)
			time.Sleep(2 * slowWriteAfter)
			g.timerFired()
			g.stop()
		}, cut: 0, pause: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			cuts, pauses := 0, 0
			g := &operationTimer{checkLimit: func(bool) time.Duration { cuts++; return 0 }}
			if tc.pauses {
				g.suspend = func() { pauses++ }
			}
			tc.do(g)
			time.Sleep(2 * limit)
			synctest.Wait()
			if cuts != tc.cut || pauses != tc.pause {
				t.Errorf("%s: aborted %d times, suspended %d times, want %d and %d", name, cuts, pauses, tc.cut, tc.pause)
			}
			g.disable()
		})
	}
}
