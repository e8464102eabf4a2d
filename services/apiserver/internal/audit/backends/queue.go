package backends

import (
	"errors"
	"slices"
	"sync"
)

// maxQueued bounds the events that wait or are on their way, in bytes.
const maxQueued = 64 << 20

var (
	errFull   = errors.New("audit buffer queue blocked")
	errClosed = errors.New("audit backend shut down")
)

// queue holds events that wait.
type queue struct {
	most int // events
	wake chan struct{}

	mu     sync.Mutex // leaf
	events [][]byte
	bytes  int64 // of events, and of those on their way
	closed bool
}

func newQueue(most int) *queue { return &queue{most: most, wake: make(chan struct{}, 1)} }

// put adds an event, which then belongs to the queue.
func (q *queue) put(event []byte) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return errClosed
	case len(q.events) >= q.most || q.bytes+int64(cap(event)) > maxQueued && len(q.events) > 0:
		return errFull
	}
	q.events = append(q.events, event)
	q.bytes += int64(cap(event))
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return nil
}

// take removes the events that come first: at most so many, and so many bytes, but one at
// least, if there is one.
func (q *queue) take(most int, mostBytes int64) [][]byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	batch := slices.Clone(q.events[:q.fits(most, mostBytes)])
	clear(q.events[:len(batch)])
	if q.events = q.events[len(batch):]; len(q.events) == 0 {
		q.events = nil
	}
	return batch
}

// ready tells how many events a batch would have, and whether no other would fit.
func (q *queue) ready(most int, mostBytes int64) (n int, full bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n = q.fits(most, mostBytes)
	return n, n > 0 && (n == most || n < len(q.events))
}

// fits tells how many events one batch takes. The caller holds mu.
func (q *queue) fits(most int, mostBytes int64) (n int) {
	var size int64
	for n < len(q.events) && n < most {
		if size += int64(len(q.events[n])); n > 0 && size > mostBytes {
			break
		}
		n++
	}
	return n
}

// done gives back the room of events that were on their way.
func (q *queue) done(batch [][]byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range batch {
		q.bytes -= int64(cap(e))
	}
}

// close refuses events from now on.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}
