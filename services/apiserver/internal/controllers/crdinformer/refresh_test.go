package crdinformer_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/api/apiset"
)

// Many who look for the newest definitions share reads of the store: there are no more of
// them than the time has room for.
func TestLooksAreShared(t *testing.T) {
	r := newRig(t, widgets(1, "True", ""))
	r.until()
	var reads atomic.Int64
	confirm := func(at int64) int64 { reads.Add(1); return at }
	r.source.confirm.Store(&confirm)
	const callers, each, between = 200, 20, 5 * time.Millisecond
	var all sync.WaitGroup
	begin := time.Now()
	for range callers {
		all.Go(func() {
			for range each {
				if s := r.follower.Newest(t.Context(), r.live); !r.serves(s, 1) {
					t.Error("what is defined is not served")
				}
			}
		})
	}
	all.Wait()
	if most := int64(time.Since(begin)/between) + 2; reads.Load() > most || reads.Load() < each {
		t.Errorf("%d reads for %d looks, of which %d come after one another; there is room for %d", reads.Load(), callers*each, each, most)
	}
}

// Who looks while a read runs gets what a later one tells: the one that runs may be older
// than what was written before the look.
func TestALookDoesNotShareWhatBeganBeforeIt(t *testing.T) {
	r := newRig(t, widgets(1, "True", ""))
	r.until()
	began, answer := make(chan int64), make(chan int64)
	confirm := func(at int64) int64 {
		began <- at
		return <-answer
	}
	r.source.confirm.Store(&confirm)
	look := func() <-chan *apiset.Set {
		found := make(chan *apiset.Set, 1)
		go func() { found <- r.follower.Newest(context.Background(), r.live) }()
		return found
	}
	first := look()
	at := <-began
	// Another replica defines something, and its answer has come.
	second := look()
	answer <- at
	if s := <-first; r.serves(s, 2) {
		t.Error("what was defined later is served before it is told")
	}
	<-began
	answer <- at + 1
	r.tell([]string{widgets(2, "True", "")})
	r.until()
	if s := <-second; !r.serves(s, 2) {
		t.Error("what was defined before the look is not served")
	}
}
