package crdinformer_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/api/apiset"
)

// TestRefreshesShareReads checks that concurrent refreshes share reads of the store.
func TestRefreshesShareReads(t *testing.T) {
	f := newFixture(t, widgets(1, "True", ""))
	f.until()
	var reads atomic.Int64
	confirm := func(at int64) int64 { reads.Add(1); return at }
	f.source.confirm.Store(&confirm)
	const callers, each, between = 200, 20, 5 * time.Millisecond
	var all sync.WaitGroup
	start := time.Now()
	for range callers {
		all.Go(func() {
			for range each {
				if s := f.follower.NewestSet(t.Context(), f.live); !f.serves(s, 1) {
					t.Error("a definition is not served")
				}
			}
		})
	}
	all.Wait()
	if most := int64(time.Since(start)/between) + 2; reads.Load() > most || reads.Load() < each {
		t.Errorf("got %d reads for %d refreshes, %d of them in sequence, want at most %d", reads.Load(), callers*each, each, most)
	}
}

// TestRefreshDoesNotJoinEarlierRead checks that a read that is in progress may be older than a
// write that precedes the refresh. The refresh waits for the next read.
func TestRefreshDoesNotJoinEarlierRead(t *testing.T) {
	f := newFixture(t, widgets(1, "True", ""))
	f.until()
	start, answer := make(chan int64), make(chan int64)
	confirm := func(at int64) int64 {
		start <- at
		return <-answer
	}
	f.source.confirm.Store(&confirm)
	revisionRead := func() <-chan *apiset.Set {
		found := make(chan *apiset.Set, 1)
		go func() { found <- f.follower.NewestSet(context.Background(), f.live) }()
		return found
	}
	first := revisionRead()
	at := <-start
	// Another replica creates a definition, and the client has its response.
	second := revisionRead()
	answer <- at
	if s := <-first; f.serves(s, 2) {
		t.Error("a definition is served before its event")
	}
	<-start
	answer <- at + 1
	f.send([]string{widgets(2, "True", "")})
	f.until()
	if s := <-second; !f.serves(s, 2) {
		t.Error("a definition from before the refresh is not served")
	}
}
