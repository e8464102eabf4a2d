package crdinformer

import (
	"context"
	"sync"
	"time"

	"binnacle/services/apiserver/internal/api/apiset"
)

// settleTime bounds how long a request waits for definitions that other replicas wrote.
const settleTime = 2 * time.Second

// gatherTime is the minimum interval between the starts of two reads. A read starts at once if none
// started before within that time.
const gatherTime = 5 * time.Millisecond

// looks shares reads of the newest revision, so that many requests for unknown resources cost the
// store only few reads.
type looks struct {
	mu    sync.Mutex // leaf lock
	next  *look      // the read that callers may join, because it has not started
	began time.Time  // start of the last read
}

type look struct {
	done     chan struct{}
	revision int64
	err      error
}

// revision returns the revision of a read that starts after the call.
func (l *looks) revision(ctx context.Context, read func(context.Context) (int64, error)) (int64, error) {
	l.mu.Lock()
	lk := l.next
	if lk == nil {
		lk = &look{done: make(chan struct{})}
		l.next = lk
		time.AfterFunc(time.Until(l.began.Add(gatherTime)), func() { l.begin(read) })
	}
	l.mu.Unlock()
	select {
	case <-lk.done:
		return lk.revision, lk.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// begin reads for all callers that joined until now.
func (l *looks) begin(read func(context.Context) (int64, error)) {
	l.mu.Lock()
	lk := l.next
	l.next, l.began = nil, time.Now()
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), settleTime) // independent of the callers' contexts
	defer cancel()
	lk.revision, lk.err = read(ctx)
	close(lk.done)
}

// Settled waits until the set contains the definitions as of a revision, and everything that the
// watch cache has of them by then. The wait is bounded by settleTime.
func (f *Follower) Settled(ctx context.Context, revision int64) {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	if f.Definitions.WaitFor(ctx, revision) != nil {
		return
	}
	_, _ = f.Live[0].Wait(ctx, f.Definitions.Snapshot().Changed()) // bounded: the set may follow later
}

// Newest returns the set of the newest definitions in the store. It contains every definition that
// another replica has acknowledged. The wait is bounded by settleTime. After that, Newest returns
// the current set.
func (f *Follower) Newest(ctx context.Context, live *apiset.Live) *apiset.Set {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	if revision, err := f.looks.revision(ctx, f.Definitions.MostRecent); err == nil {
		f.Settled(ctx, revision)
	}
	return live.Current()
}
