package backends

import (
	"context"
	"sync"
)

// writeGroups combines the lines that arrive during a write into one group, which its first member writes.
type writeGroups struct {
	mu    sync.Mutex  // a leaf
	next  *writeGroup // the group that new lines join
	spare *writeGroup // for reuse
}

// writeGroup is the lines of one write. It belongs to its writer until done is closed.
type writeGroup struct {
	lines   [][]byte
	done    chan struct{} // nil until a second line joins
	written int           // number of lines written; the others are lost
	err     error
	waiters int                // callers that wait for it; guarded by the mu of writeGroups
	stop    context.CancelFunc // cancels the write when no caller waits; nil if waits are not limited
}

// join adds a line to the next group and returns the index of the line. If first is true, the caller must
// start and finish the group.
func (q *writeGroups) join(line []byte) (r *writeGroup, at int, first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if first = q.next == nil; first {
		if q.next, q.spare = q.spare, nil; q.next == nil {
			q.next = &writeGroup{}
		}
	}
	r = q.next
	at = len(r.lines)
	r.lines = append(r.lines, line)
	r.waiters++
	if !first && r.done == nil {
		r.done = make(chan struct{})
	}
	return r, at, first
}

// contextFor returns a context for a group that a separate goroutine writes. It ends when all callers have
// left.
func (q *writeGroups) contextFor(r *writeGroup) (ctx context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r.done == nil {
		r.done = make(chan struct{})
	}
	ctx, r.stop = context.WithCancel(context.Background())
	return ctx
}

// leave ends the wait of one caller. Its line stays in the group.
func (q *writeGroups) leave(r *writeGroup) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r.waiters--; r.waiters == 0 {
		if q.next == r { // later lines join another group
			q.next = nil
		}
		r.stop()
	}
}

// start closes the group for new lines and reports whether callers wait for it.
func (q *writeGroups) start(r *writeGroup) (waiting bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.next == r {
		q.next = nil
	}
	return r.done != nil
}

// finish sets the result of a group and wakes its callers. It returns the result of the first line.
func (q *writeGroups) finish(r *writeGroup, waiting bool, lost int, err error) (int, error) {
	r.written, r.err = len(r.lines)-lost, err
	if waiting {
		close(r.done)
		if r.stop != nil {
			r.stop()
		}
		return r.result(0)
	}
	lost, err = r.result(0)
	clear(r.lines)
	r.lines, r.err, r.waiters = r.lines[:0], nil, 0
	q.mu.Lock()
	defer q.mu.Unlock()
	q.spare = r
	return lost, err
}

// result returns the result of the line at an index.
func (r *writeGroup) result(at int) (lost int, err error) {
	if at < r.written {
		return 0, nil
	}
	return 1, r.err
}

// writeLock serializes writes. If sem is set, waits for it are limited by a context, because a write to a pipe
// may block for long.
type writeLock struct {
	mu  sync.Mutex
	sem chan struct{} // used instead of mu if waits are limited; capacity 1
}

// acquire waits for the lock. If waits are limited, it fails when ctx ends.
func (l *writeLock) acquire(ctx context.Context) error {
	if l.sem == nil {
		l.mu.Lock()
		return nil
	}
	select {
	case l.sem <- struct{}{}:
		return nil
	default:
	}
	select {
	case l.sem <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errNotRead
	}
}

// release releases the lock.
func (l *writeLock) release() {
	if l.sem == nil {
		l.mu.Unlock()
		return
	}
	<-l.sem
}
