package endpoints

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestWorkersRunAtOnce: nobody waits for another, and who has run before runs again.
func TestWorkersRunAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 50
		var w workers
		waiting := func() int {
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.idle)
		}
		for range 3 {
			var at atomic.Int32
			release := make(chan struct{})
			for range n {
				w.run(func() { at.Add(1); <-release })
			}
			synctest.Wait()
			if at.Load() != n {
				t.Fatalf("%d of %d run", at.Load(), n)
			}
			close(release)
			if left := waiting(); left != n {
				t.Fatalf("%d workers are left of %d", left, n)
			}
		}
		for range 10 { // one is enough
			w.run(func() {})
			synctest.Wait()
		}
		time.Sleep(trimEvery + time.Millisecond)
		w.run(func() {})
		synctest.Wait()
		time.Sleep(2 * trimEvery)
		if left := waiting(); left > 1 {
			t.Errorf("%d workers wait for work of one", left)
		}
		time.Sleep(2 * trimEvery)
		if left := waiting(); left > 0 {
			t.Errorf("%d workers wait for nothing", left)
		}
		w.run(func() {}) // goes on, and ends with the test
		time.Sleep(3 * trimEvery)
	})
}
