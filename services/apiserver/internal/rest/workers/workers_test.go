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

// TestWorkersAreReused checks that no work waits for blocked work, that idle workers are reused, and
// that unneeded ones end.
func TestWorkersAreReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 50
		var pool Pool
		idleWorkers := func() int {
			synctest.Wait()
			pool.mu.Lock()
			defer pool.mu.Unlock()
			return len(pool.idle)
		}
		for range 3 {
			var started atomic.Int32
			release := make(chan struct{})
			for range n {
				pool.Run("user", func() { started.Add(1); <-release })
			}
			time.Sleep(n * periodLength) // each function soon counts as waiting
			synctest.Wait()
			if started.Load() != n {
				t.Fatalf("got %d functions started, want %d", started.Load(), n)
			}
			close(release)
			if idle := idleWorkers(); idle != n {
				t.Fatalf("%d workers are idle, want %d", idle, n)
			}
		}
		for range 10 { // needs one worker
			pool.Run("user", func() {})
			synctest.Wait()
		}
		time.Sleep(trimInterval + time.Millisecond)
		pool.Run("user", func() {})
		synctest.Wait()
		time.Sleep(2 * trimInterval)
		if idle := idleWorkers(); idle > 1 {
			t.Errorf("%d workers are idle, want at most 1", idle)
		}
		time.Sleep(2 * trimInterval)
		if idle := idleWorkers(); idle > 0 {
			t.Errorf("%d workers are idle, want 0", idle)
		}
		pool.Run("user", func() {}) // runs until the test ends
		time.Sleep(3 * trimInterval)
	})
}

// TestWorkersAreSharedFairly checks that the number of running functions is limited and that users
// with few functions do not wait for all of a user with many.
func TestWorkersAreSharedFairly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := recentPerCPU * runtime.GOMAXPROCS(0)
		var pool Pool
		var mu sync.Mutex
		var ran []string
		running, highest := 0, 0
		enqueue := func(user string) {
			pool.Run(user, func() {
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
		for range limit {
			pool.Run("many", func() { <-release })
		}
		for range 1000 {
			enqueue("many")
		}
		enqueue("one")
		enqueue("other")
		close(release)
		synctest.Wait()
		if len(ran) != 1002 || running != 0 {
			t.Fatalf("%d functions ran and %d are running, want 1002 and 0", len(ran), running)
		}
		if highest > limit {
			t.Errorf("%d functions ran at a time, want at most %d", highest, limit)
		}
		for _, user := range []string{"one", "other"} {
			if at := slices.Index(ran, user); at > 2*limit {
				t.Errorf("%s ran after %d functions, want at most %d", user, at, 2*limit)
			}
		}
		time.Sleep(3 * trimInterval)
	})
}
