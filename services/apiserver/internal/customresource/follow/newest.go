package follow

import (
	"context"
	"sync"
	"time"

	"binnacle/services/apiserver/internal/served"
)

// settleTime bounds how long a request waits for definitions that others wrote.
const settleTime = 2 * time.Second

// gatherTime is from the beginning of one look to that of the next. A look that nobody
// precedes begins at once.
const gatherTime = 5 * time.Millisecond

// looks shares looks for the newest revision, so that many requests that name what is
// unknown cost the store no more than some of them.
type looks struct {
	mu    sync.Mutex // leaf
	next  *look      // the one that callers may join: it has not begun
	began time.Time  // the last one
}

type look struct {
	done     chan struct{}
	revision int64
	err      error
}

// revision is that of a read which begins after the call.
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

// begin reads for all who have come until now.
func (l *looks) begin(read func(context.Context) (int64, error)) {
	l.mu.Lock()
	lk := l.next
	l.next, l.began = nil, time.Now()
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), settleTime) // not the callers' own
	defer cancel()
	lk.revision, lk.err = read(ctx)
	close(lk.done)
}

// Settled waits until the set has what the definitions said at a revision, and
// all that the watch cache has of them by then. The wait is bounded.
func (f *Follower) Settled(ctx context.Context, revision int64) {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	if f.Definitions.WaitFor(ctx, revision) != nil {
		return
	}
	_, _ = f.Live[0].Wait(ctx, f.Definitions.Snapshot().Changed()) // bounded: the set comes later then
}

// Newest is the set as the newest definitions of the whole suite make it: what
// another replica has acknowledged is in it. The wait is bounded, after it the
// set is what it is.
func (f *Follower) Newest(ctx context.Context, live *served.Live) *served.Set {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	if revision, err := f.looks.revision(ctx, f.Definitions.MostRecent); err == nil {
		f.Settled(ctx, revision)
	}
	return live.Current()
}
