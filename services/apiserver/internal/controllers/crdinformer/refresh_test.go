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
	fixture := newFixture(t, widgets(1, "True", ""))
	fixture.waitForSwaps()
	var reads atomic.Int64
	confirm := func(at int64) int64 { reads.Add(1); return at }
	fixture.source.confirm.Store(&confirm)
	const callers, refreshesPerCaller = 200, 20
	const interval = 5 * time.Millisecond // between the starts of two reads
	var group sync.WaitGroup
	start := time.Now()
	for range callers {
		group.Go(func() {
			for range refreshesPerCaller {
				if set := fixture.syncer.NewestSet(t.Context(), fixture.live); !fixture.serves(set, 1) {
					t.Error("set without the initial definition, want it served")
				}
			}
		})
	}
	group.Wait()
	maxReads := int64(time.Since(start)/interval) + 2
	if count := reads.Load(); count > maxReads || count < refreshesPerCaller {
		t.Errorf("got %d reads for %d refreshes, %d of them in sequence, want %d to %d", count, callers*refreshesPerCaller, refreshesPerCaller, refreshesPerCaller, maxReads)
	}
}

// TestRefreshDoesNotJoinEarlierRead checks that a read that is in progress may be older than a
// write that precedes the refresh. The refresh waits for the next read.
func TestRefreshDoesNotJoinEarlierRead(t *testing.T) {
	fixture := newFixture(t, widgets(1, "True", ""))
	fixture.waitForSwaps()
	start, respond := make(chan int64), make(chan int64)
	confirm := func(at int64) int64 {
		start <- at
		return <-respond
	}
	fixture.source.confirm.Store(&confirm)
	refresh := func() <-chan *apiset.Set {
		found := make(chan *apiset.Set, 1)
		go func() { found <- fixture.syncer.NewestSet(context.Background(), fixture.live) }()
		return found
	}
	first := refresh()
	at := <-start
	// Another replica creates a definition, and the client has its response.
	second := refresh()
	respond <- at
	if set := <-first; fixture.serves(set, 2) {
		t.Error("first refresh: got the new definition served before its event, want it not served")
	}
	<-start
	respond <- at + 1
	fixture.send([]string{widgets(2, "True", "")})
	fixture.waitForSwaps()
	if set := <-second; !fixture.serves(set, 2) {
		t.Error("second refresh: got the definition from before it not served, want it served")
	}
}
