package crdinformer

import (
	"context"
	"sync"
	"time"

	"binnacle/services/apiserver/internal/api/apiset"
)

// waitTimeout is how long a request waits, at most, for definitions that other replicas have
// written.
const waitTimeout = 2 * time.Second

// minReadInterval is the minimum interval between the starts of two reads. If the last read started
// longer ago, the next one starts immediately.
const minReadInterval = 5 * time.Millisecond

// revisionReads shares reads of the newest revision, so that many requests for unknown resources
// cost the store only few reads.
type revisionReads struct {
	mu        sync.Mutex    // leaf lock
	next      *revisionRead // the read that callers join, because it has not started yet; nil if none
	lastStart time.Time     // when the last read started
}

// revisionRead is a read of the store's revision. Several callers may wait for it.
type revisionRead struct {
	done     chan struct{} // closed when revision and err are set
	revision int64
	err      error
}

// read returns the store's revision from a read that starts after the call, so that it is at least
// the revision at the time of the call.
func (r *revisionReads) read(ctx context.Context, read func(context.Context) (int64, error)) (int64, error) {
	r.mu.Lock()
	next := r.next
	if next == nil {
		next = &revisionRead{done: make(chan struct{})}
		r.next = next
		time.AfterFunc(time.Until(r.lastStart.Add(minReadInterval)), func() { r.start(read) })
	}
	r.mu.Unlock()
	select {
	case <-next.done:
		return next.revision, next.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// start performs the read for all callers that have joined it. Later callers join another one.
func (r *revisionReads) start(read func(context.Context) (int64, error)) {
	r.mu.Lock()
	next := r.next
	r.next = nil
	r.lastStart = time.Now()
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout) // independent of the callers' contexts
	defer cancel()
	next.revision, next.err = read(ctx)
	close(next.done)
}

// WaitForRevision waits until the API sets reflect the definitions at a revision, but not longer
// than waitTimeout.
func (s *Syncer) WaitForRevision(ctx context.Context, revision int64) {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	if s.Definitions.WaitFor(ctx, revision) != nil {
		return
	}
	// swap updates all sets one after the other in one step, so waiting for one of them is enough.
	// An error only means that the time is over.
	_, _ = s.Live[0].Wait(ctx, s.Definitions.Snapshot().LastChangeRevision())
}

// NewestSet returns the API set of live with the newest definitions in the store, including every
// definition that another replica has acknowledged. If that takes longer than waitTimeout,
// NewestSet returns the current set.
func (s *Syncer) NewestSet(ctx context.Context, live *apiset.Live) *apiset.Set {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	if revision, err := s.revisionReads.read(ctx, s.Definitions.MostRecent); err == nil {
		s.WaitForRevision(ctx, revision)
	}
	return live.Current()
}
