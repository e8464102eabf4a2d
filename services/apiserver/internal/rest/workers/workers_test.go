package workers

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestWorkersRun checks that no work waits for blocked work, that idle workers are reused, and
// that unneeded ones end.
func TestWorkersRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 50
		var w Pool
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
				w.Run("user", func() { at.Add(1); <-release })
			}
			time.Sleep(n * lately) // few of them are needed
			synctest.Wait()
			if at.Load() != n {
				t.Fatalf("%d of %d functions run", at.Load(), n)
			}
			close(release)
			if left := waiting(); left != n {
				t.Fatalf("%d workers are idle, want %d", left, n)
			}
		}
		for range 10 { // needs one worker
			w.Run("user", func() {})
			synctest.Wait()
		}
		time.Sleep(trimEvery + time.Millisecond)
		w.Run("user", func() {})
		synctest.Wait()
		time.Sleep(2 * trimEvery)
		if left := waiting(); left > 1 {
			t.Errorf("%d workers are idle, want at most 1", left)
		}
		time.Sleep(2 * trimEvery)
		if left := waiting(); left > 0 {
			t.Errorf("%d workers are idle, want 0", left)
		}
		w.Run("user", func() {}) // runs until the test ends
		time.Sleep(3 * trimEvery)
	})
}

// TestWorkersAreSharedFairly checks that the number of running functions is limited and that users
// with few functions do not wait for all of a user with many.
func TestWorkersAreSharedFairly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		most := freshPerCPU * runtime.GOMAXPROCS(0)
		var w Pool
		var mu sync.Mutex
		var ran []string
		running, highest := 0, 0
		does := func(user string) {
			w.Run(user, func() {
				mu.Lock()
				running++
				highest = max(highest, running)
				ran = append(ran, user)
				mu.Unlock()
				runtime.Gosched()
				mu.Lock()
				running--
				mu.Unlock()
			})
		}
		release := make(chan struct{})
		for range most {
			w.Run("many", func() { <-release })
		}
		for range 1000 {
			does("many")
		}
		does("one")
		does("other")
		close(release)
		synctest.Wait()
		if len(ran) != 1002 || running != 0 {
			t.Fatalf("%d functions ran and %d are running, want 1002 and 0", len(ran), running)
		}
		if highest > most {
			t.Errorf("%d functions ran at a time, want at most %d", highest, most)
		}
		for _, user := range []string{"one", "other"} {
			if at := slices.Index(ran, user); at > 2*most {
				t.Errorf("%s ran after %d functions, want at most %d", user, at, 2*most)
			}
		}
		time.Sleep(3 * trimEvery)
	})
}
