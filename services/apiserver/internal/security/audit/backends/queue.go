package backends

import (
	"errors"
	"slices"
	"sync"
)

const (
	// maxQueued bounds the events that wait or are on their way, in bytes.
	maxQueued = 64 << 20
	// usual is the memory of an event to begin with, maxReused the most that is used again
	// for others, and maxFree how many pieces of it are kept for that.
	usual     = 1 << 10
	maxReused = 4 << 10
	maxFree   = 1000
)

var (
	errFull   = errors.New("audit buffer queue blocked")
	errClosed = errors.New("audit backend shut down")
)

// queue holds events that wait, and gives them out in batches.
type queue struct {
	most int // events that may wait
	// A batch has so many events at most, and so many bytes unless it has one alone.
	batch      int
	batchBytes int64
	wake       chan struct{} // there is a first event, or a batch is full

	mu      sync.Mutex // leaf
	events  [][]byte
	waiting int64 // bytes of events
	held    int64 // bytes of memory that these, and those on their way, take
	closed  bool
	free    [][]byte // memory of events that have been delivered
	spare   [][]byte // of a batch
}

func newQueue(most, batch int, batchBytes int64) *queue {
	return &queue{most: most, batch: batch, batchBytes: batchBytes, wake: make(chan struct{}, 1)}
}

// buffer is memory for an event.
func (q *queue) buffer() []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	last := len(q.free) - 1
	if last < 0 {
		return make([]byte, 0, usual)
	}
	b := q.free[last]
	q.free[last], q.free = nil, q.free[:last]
	return b
}

// put adds an event, which then belongs to the queue.
func (q *queue) put(event []byte) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return errClosed
	case len(q.events) >= q.most || q.held+int64(cap(event)) > maxQueued && q.held > 0:
		return errFull
	}
	q.events = append(q.events, event)
	q.waiting += int64(len(event))
	q.held += int64(cap(event))
	if len(q.events) == 1 || q.full() {
		select {
		case q.wake <- struct{}{}:
		default: // it is being told already
		}
	}
	return nil
}

// full tells that no other event would fit into a batch. The caller holds mu.
func (q *queue) full() bool { return len(q.events) >= q.batch || q.waiting >= q.batchBytes }

// ready tells whether events wait, and whether they fill a batch.
func (q *queue) ready() (some, full bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.events) > 0, q.full()
}

// take removes a batch of the events that came first.
func (q *queue) take() [][]byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, size := 0, int64(0)
	for n < len(q.events) && n < q.batch && (n == 0 || size+int64(len(q.events[n])) <= q.batchBytes) {
		size += int64(len(q.events[n]))
		n++
	}
	q.waiting -= size
	if n == len(q.events) {
		batch := q.events
		q.events, q.spare = q.spare, nil
		return batch
	}
	batch := slices.Clone(q.events[:n])
	clear(q.events[:n])
	q.events = q.events[n:]
	return batch
}

// done gives back the room and the memory of events that were on their way.
func (q *queue) done(batch [][]byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range batch {
		q.held -= int64(cap(e))
		if cap(e) <= maxReused && len(q.free) < maxFree {
			q.free = append(q.free, e[:0])
		}
	}
	clear(batch)
	if q.spare == nil && cap(batch) <= maxFree {
		q.spare = batch[:0]
	}
}

// close refuses events from now on.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}
