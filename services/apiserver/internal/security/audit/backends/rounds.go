package backends

import (
	"context"
	"sync"
)

// rounds have those who come while a write is under way written together by the first of
// them, instead of by a write each.
type rounds struct {
	mu    sync.Mutex // a leaf
	next  *round     // that others may join
	spare *round     // to be used again
}

// round is what goes out in one write. It belongs to its first until done is closed.
type round struct {
	lines [][]byte
	done  chan struct{} // nil until a second one comes
	whole int           // of lines; those behind are lost
	err   error
	here  int                // how many wait for it, under the rounds' mu
	stop  context.CancelFunc // ends it when nobody does; nil where it always ends
}

// join adds a line to the round that is to begin next, and tells its place; who is first
// has to begin and end it.
func (q *rounds) join(line []byte) (r *round, at int, first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if first = q.next == nil; first {
		if q.next, q.spare = q.spare, nil; q.next == nil {
			q.next = &round{}
		}
	}
	r = q.next
	at = len(r.lines)
	r.lines = append(r.lines, line)
	r.here++
	if !first && r.done == nil {
		r.done = make(chan struct{})
	}
	return r, at, first
}

// while is for a round that somebody else writes than its first, who waits as the others do:
// the context ends when all have left.
func (q *rounds) while(r *round) (ctx context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r.done == nil {
		r.done = make(chan struct{})
	}
	ctx, r.stop = context.WithCancel(context.Background())
	return ctx
}

// leave is for who does not wait any more. The line is the round's still.
func (q *rounds) leave(r *round) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r.here--; r.here == 0 {
		if q.next == r { // who comes now waits for another one
			q.next = nil
		}
		r.stop()
	}
}

// begin lets nobody else join, and tells whether anybody waits.
func (q *rounds) begin(r *round) (waiting bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.next == r {
		q.next = nil
	}
	return r.done != nil
}

// end tells all of a round what became of it. It returns what became of the first line.
func (q *rounds) end(r *round, waiting bool, lost int, err error) (int, error) {
	r.whole, r.err = len(r.lines)-lost, err
	if waiting {
		close(r.done)
		if r.stop != nil {
			r.stop()
		}
		return r.of(0)
	}
	lost, err = r.of(0)
	clear(r.lines)
	r.lines, r.err, r.here = r.lines[:0], nil, 0
	q.mu.Lock()
	defer q.mu.Unlock()
	q.spare = r
	return lost, err
}

// of is what became of a line.
func (r *round) of(at int) (lost int, err error) {
	if at < r.whole {
		return 0, nil
	}
	return 1, r.err
}
