package handlers

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestWorkersRun: nobody waits for who waits for something else, and who has run before runs again.
func TestWorkersRun(t *testing.T) {
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
				w.run("somebody", func() { at.Add(1); <-release })
			}
			time.Sleep(n * lately) // of which few are needed
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
			w.run("somebody", func() {})
			synctest.Wait()
		}
		time.Sleep(trimEvery + time.Millisecond)
		w.run("somebody", func() {})
		synctest.Wait()
		time.Sleep(2 * trimEvery)
		if left := waiting(); left > 1 {
			t.Errorf("%d workers wait for work of one", left)
		}
		time.Sleep(2 * trimEvery)
		if left := waiting(); left > 0 {
			t.Errorf("%d workers wait for nothing", left)
		}
		w.run("somebody", func() {}) // goes on, and ends with the test
		time.Sleep(3 * trimEvery)
	})
}

// TestUsersOfWorkersTakeTurns: of many at a time few run, and who has one waits for one of each other user.
func TestUsersOfWorkersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		most := freshPerCPU * runtime.GOMAXPROCS(0)
		var w workers
		var mu sync.Mutex
		var ran []string
		running, highest := 0, 0
		does := func(user string) {
			w.run(user, func() {
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
			w.run("many", func() { <-release })
		}
		for range 1000 {
			does("many")
		}
		does("one")
		does("other")
		close(release)
		synctest.Wait()
		if len(ran) != 1002 || running != 0 {
			t.Fatalf("%d ran, %d run", len(ran), running)
		}
		if highest > most {
			t.Errorf("%d run at a time, of %d", highest, most)
		}
		for _, user := range []string{"one", "other"} {
			if at := slices.Index(ran, user); at > 2*most {
				t.Errorf("%s runs after %d of many", user, at)
			}
		}
		time.Sleep(3 * trimEvery)
	})
}
