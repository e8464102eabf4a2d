package crdinformer

import (
	"context"
	"sync"
	"time"

	"binnacle/services/apiserver/internal/api/apiset"
)

// waitTimeout bounds how long a request waits for definitions that other replicas wrote.
const waitTimeout = 2 * time.Second

// minReadInterval is the minimum interval between the starts of two reads. A read starts
// immediately if none started before within that time.
const minReadInterval = 5 * time.Millisecond

// revisionReads shares reads of the newest revision, so that many requests for unknown resources
// cost the store only few reads.
type revisionReads struct {
	mu        sync.Mutex    // leaf lock
	next      *revisionRead // the read that callers may join, because it has not started
	lastStart time.Time     // start of the last read
}

// revisionRead is a read of the store's revision that several callers may wait for.
type revisionRead struct {
	done     chan struct{}
	revision int64
	err      error
}

// read returns the revision of a read that starts after the call.
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

// start runs the read for all callers that have joined it.
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

// WaitForRevision waits until the API set reflects the definitions at a revision. The wait is
// bounded by waitTimeout.
func (s *Syncer) WaitForRevision(ctx context.Context, revision int64) {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	if s.Definitions.WaitFor(ctx, revision) != nil {
		return
	}
	// swap replaces all sets in one step, the first one first. Ignore the error: the wait
	// is bounded.
	_, _ = s.Live[0].Wait(ctx, s.Definitions.Snapshot().LastChangeRevision())
}

// NewestSet returns the set of the newest definitions in the store. It contains every definition that
// another replica has acknowledged. The wait is bounded by waitTimeout. After that, NewestSet
// returns the current set.
func (s *Syncer) NewestSet(ctx context.Context, live *apiset.Live) *apiset.Set {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	if revision, err := s.revisionReads.read(ctx, s.Definitions.MostRecent); err == nil {
		s.WaitForRevision(ctx, revision)
	}
	return live.Current()
}
