package backends

import "sync"

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
	if !first && r.done == nil {
		r.done = make(chan struct{})
	}
	return r, at, first
}

// begin lets nobody else join, and tells whether anybody waits.
func (q *rounds) begin(r *round) (waiting bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.next = nil
	return r.done != nil
}

// end tells all of a round what became of it. It returns what became of the first line.
func (q *rounds) end(r *round, waiting bool, lost int, err error) (int, error) {
	r.whole, r.err = len(r.lines)-lost, err
	if waiting {
		close(r.done)
		return r.of(0)
	}
	lost, err = r.of(0)
	clear(r.lines)
	r.lines, r.err = r.lines[:0], nil
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
