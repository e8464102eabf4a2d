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
	for name, test := range map[string]struct {
		pauses        bool
		operation     func(g *operationTimer)
		aborts, pause int
	}{
		"short": {
			pauses:    true,
			operation: func(g *operationTimer) { g.start(limit); time.Sleep(slowWriteAfter / 2); g.stop() },
			aborts:    0,
			pause:     0,
		},
		"slow": {pauses: true, operation: func(g *operationTimer) {
			g.start(limit)
			time.Sleep(limit - 1)
			if !g.stop() {
				t.Error("stop() just before the limit = false, want true")
			}
		}, aborts: 0, pause: 1},
		"too long":                      {pauses: true, operation: func(g *operationTimer) { g.start(limit) }, aborts: 1, pause: 1},
		"too long, no suspend function": {pauses: false, operation: func(g *operationTimer) { g.start(limit) }, aborts: 1, pause: 0},
		"limit shorter than slowWriteAfter": {
			pauses:    true,
			operation: func(g *operationTimer) { g.start(slowWriteAfter / 2) },
			aborts:    1,
			pause:     0,
		},
		"no operation":           {pauses: true, operation: func(g *operationTimer) { g.stop(); g.disable() }, aborts: 0, pause: 0},
		"start after close":      {pauses: true, operation: func(g *operationTimer) { g.disable(); g.start(limit) }, aborts: 0, pause: 0},
		"close during operation": {pauses: true, operation: func(g *operationTimer) { g.start(limit); g.disable() }, aborts: 0, pause: 0},
		"second operation": {
			pauses:    true,
			operation: func(g *operationTimer) { g.start(limit); time.Sleep(2 * slowWriteAfter); g.stop(); g.start(limit) },
			aborts:    1,
			pause:     2,
		},
		"timer fires after the operation": {pauses: true, operation: func(g *operationTimer) {
			g.start(slowWriteAfter)
			time.Sleep(slowWriteAfter / 2)
			g.stop()
			time.Sleep(slowWriteAfter)
			g.timerFired()
		}, aborts: 0, pause: 0},
		"timer fires in the next operation": {pauses: false, operation: func(g *operationTimer) {
			g.start(limit)
			g.timerFired()
			g.stop()
		}, aborts: 0, pause: 0},
		"timer fires after suspend": {pauses: true, operation: func(g *operationTimer) {
			g.start(limit)
			time.Sleep(2 * slowWriteAfter)
			g.timerFired()
			g.stop()
		}, aborts: 0, pause: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			cuts, pauses := 0, 0
			g := &operationTimer{checkLimit: func(bool) time.Duration { cuts++; return 0 }}
			if test.pauses {
				g.suspend = func() { pauses++ }
			}
			test.operation(g)
			time.Sleep(2 * limit)
			synctest.Wait()
			if cuts != test.aborts || pauses != test.pause {
				t.Errorf("%s: aborted %d times, suspended %d times, want %d and %d", name, cuts, pauses, test.aborts, test.pause)
			}
			g.disable()
		})
	}
}
