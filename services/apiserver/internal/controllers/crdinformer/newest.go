package crdinformer

import (
	"context"
	"sync"
	"time"

	"binnacle/services/apiserver/internal/api/apiset"
)

// settleTimeout bounds how long a request waits for definitions that other replicas wrote.
const settleTimeout = 2 * time.Second

// minReadInterval is the minimum interval between the starts of two reads. A read starts at once if
// none started before within that time.
const minReadInterval = 5 * time.Millisecond

// revisionReads shares reads of the newest revision, so that many requests for unknown resources
// cost the store only few reads.
type revisionReads struct {
	mu    sync.Mutex    // leaf lock
	next  *revisionRead // the read that callers may join, because it has not started
	began time.Time     // start of the last read
}

// revisionRead is a read of the store's revision that several callers may wait for.
type revisionRead struct {
	done     chan struct{}
	revision int64
	err      error
}

// revision returns the revision of a read that starts after the call.
func (r *revisionReads) revision(ctx context.Context, read func(context.Context) (int64, error)) (int64, error) {
	r.mu.Lock()
	next := r.next
	if next == nil {
		next = &revisionRead{done: make(chan struct{})}
		r.next = next
		time.AfterFunc(time.Until(r.began.Add(minReadInterval)), func() { r.begin(read) })
	}
	r.mu.Unlock()
	select {
	case <-next.done:
		return next.revision, next.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// begin runs the read for all callers that have joined it.
func (r *revisionReads) begin(read func(context.Context) (int64, error)) {
	r.mu.Lock()
	next := r.next
	r.next = nil
	r.began = time.Now()
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout) // independent of the callers' contexts
	defer cancel()
	next.revision, next.err = read(ctx)
	close(next.done)
}

// WaitForRevision waits until the set contains the definitions as of a revision, and everything that the
// watch cache has of them by then. The wait is bounded by settleTimeout.
func (s *Syncer) WaitForRevision(ctx context.Context, revision int64) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if s.Definitions.WaitFor(ctx, revision) != nil {
		return
	}
	_, _ = s.Live[0].Wait(ctx, s.Definitions.Snapshot().Changed()) // bounded: the set may follow later
}

// NewestSet returns the set of the newest definitions in the store. It contains every definition that
// another replica has acknowledged. The wait is bounded by settleTimeout. After that, NewestSet
// returns the current set.
func (s *Syncer) NewestSet(ctx context.Context, live *apiset.Live) *apiset.Set {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if revision, err := s.revisionReads.revision(ctx, s.Definitions.MostRecent); err == nil {
		s.WaitForRevision(ctx, revision)
	}
	return live.Current()
}
