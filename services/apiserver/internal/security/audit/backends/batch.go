package backends

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// defaultFlushTimeout is the maximum time to deliver waiting events at shutdown.
const defaultFlushTimeout = 10 * time.Second

// Run delivers queued events until ctx ends. It then delivers the queue in order, for at most
// flushTimeout. Events that are processed after ctx has ended are lost.
func (b *Backend) Run(ctx context.Context) error {
	if b.queue == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	// 1. Let deliveries continue for flushTimeout after ctx ends. The timer is stopped before it can
	// fire, and started when ctx ends.
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	timer := time.AfterFunc(time.Hour, stop)
	timer.Stop()
	defer timer.Stop()
	defer context.AfterFunc(ctx, func() { timer.Reset(b.flushTimeout) })()

	// 2. Deliver batches until ctx ends.
	var inFlight sync.WaitGroup
	b.sendBatches(ctx, sending, &inFlight)

	// 3. Deliver the rest in order, after the deliveries in progress.
	b.queue.close()
	inFlight.Wait()
	for {
		batch := b.queue.nextBatch()
		if len(batch) == 0 {
			return ctx.Err()
		}
		b.sendBatch(sending, batch)
	}
}

// sendBatches sends batches until ctx ends. inFlight counts the concurrent deliveries.
func (b *Backend) sendBatches(ctx, sending context.Context, inFlight *sync.WaitGroup) {
	throttle := rate.NewLimiter(rate.Inf, 0)
	if b.Batch.Throttle {
		throttle = rate.NewLimiter(rate.Limit(b.Batch.QPS), b.Batch.Burst)
	}
	slots := make(chan struct{}, b.maxConcurrent)
	for b.awaitBatch(ctx) {
		if throttle.Wait(ctx) != nil {
			return
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		batch := b.queue.nextBatch()
		if b.maxConcurrent == 1 {
			b.sendBatch(sending, batch)
			<-slots
			continue
		}
		inFlight.Go(func() {
			b.sendBatch(sending, batch)
			<-slots
		})
	}
}

// awaitBatch waits until a batch is full or its first event has waited for MaxWait. It returns
// false when ctx has ended.
func (b *Backend) awaitBatch(ctx context.Context) bool {
	var maxWaitOver <-chan time.Time
	for {
		waiting, full := b.queue.pending()
		if full || waiting && b.Batch.MaxWait <= 0 {
			return ctx.Err() == nil
		}
		if waiting && maxWaitOver == nil {
			timer := time.NewTimer(b.Batch.MaxWait)
			defer timer.Stop()
			maxWaitOver = timer.C
		}
		select {
		case <-b.queue.wake:
		case <-maxWaitOver:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// sendBatch delivers a batch, records lost events and recycles the buffers.
func (b *Backend) sendBatch(ctx context.Context, batch [][]byte) {
	defer b.queue.releaseBuffers(batch)
	if lost, err := b.deliverer.deliver(ctx, batch); err != nil {
		b.losses.recordLoss(b.name, lost, err)
	}
}

const (
	initialBufferSize   = 1 << 10 // bytes of a new buffer for an event
	maxReusedBufferSize = 4 << 10 // bytes; larger buffers are not reused
	maxFreeBuffers      = 1000    // number of buffers kept for reuse
)

var (
	errQueueFull     = errors.New("audit buffer queue blocked")
	errBackendClosed = errors.New("audit backend shut down")
)

// queue holds waiting events and returns them in batches.
type queue struct {
	maxEvents int   // maximum number of waiting events
	maxBytes  int64 // maximum size of events in the queue and in delivery
	// maxBatch and batchBytes are the limits of a batch. A batch of one event may exceed
	// batchBytes.
	maxBatch   int
	batchBytes int64
	wake       chan struct{} // signals the first event in the queue, and a full batch

	mu            sync.Mutex // leaf lock
	events        [][]byte
	queuedBytes   int64 // size of events
	retainedBytes int64 // capacity of the buffers of events in the queue and in delivery
	closed        bool
	freeBuffers   [][]byte // buffers for reuse
	spareBatch    [][]byte // a batch for reuse
}

func newQueue(maxEvents int, maxBytes int64, batch int, batchBytes int64) *queue {
	return &queue{maxEvents: maxEvents, maxBytes: maxBytes, maxBatch: batch, batchBytes: batchBytes, wake: make(chan struct{}, 1)}
}

// newBuffer returns an empty buffer for an event, if possible a used one.
func (q *queue) newBuffer() []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	last := len(q.freeBuffers) - 1
	if last < 0 {
		return make([]byte, 0, initialBufferSize)
	}
	b := q.freeBuffers[last]
	q.freeBuffers[last], q.freeBuffers = nil, q.freeBuffers[:last]
	return b
}

// push adds an event, which then belongs to the queue. An event that is larger than maxBytes is
// accepted if no other event is in the queue or in delivery.
func (q *queue) push(event []byte) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return errBackendClosed
	case len(q.events) >= q.maxEvents || q.retainedBytes+int64(cap(event)) > q.maxBytes && q.retainedBytes > 0:
		return errQueueFull
	}
	q.events = append(q.events, event)
	q.queuedBytes += int64(len(event))
	q.retainedBytes += int64(cap(event))
	if len(q.events) == 1 || q.fillsBatch() {
		select {
		case q.wake <- struct{}{}:
		default: // already signaled
		}
	}
	return nil
}

// fillsBatch reports whether the waiting events fill a batch. The caller holds mu.
func (q *queue) fillsBatch() bool {
	return len(q.events) >= q.maxBatch || q.queuedBytes >= q.batchBytes
}

// pending reports whether events wait and whether they fill a batch.
func (q *queue) pending() (waiting, full bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.events) > 0, q.fillsBatch()
}

// nextBatch removes and returns a batch of the oldest events.
func (q *queue) nextBatch() [][]byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	count, size := 0, int64(0)
	for count < len(q.events) && count < q.maxBatch && (count == 0 || size+int64(len(q.events[count])) <= q.batchBytes) {
		size += int64(len(q.events[count]))
		count++
	}
	q.queuedBytes -= size
	if count == len(q.events) {
		batch := q.events
		q.events = q.spareBatch
		q.spareBatch = nil
		return batch
	}
	batch := slices.Clone(q.events[:count])
	clear(q.events[:count])
	q.events = q.events[count:]
	return batch
}

// releaseBuffers releases the buffers of delivered events.
func (q *queue) releaseBuffers(batch [][]byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range batch {
		q.retainedBytes -= int64(cap(e))
		if cap(e) <= maxReusedBufferSize && len(q.freeBuffers) < maxFreeBuffers {
			q.freeBuffers = append(q.freeBuffers, e[:0])
		}
	}
	clear(batch)
	if q.spareBatch == nil && cap(batch) <= maxFreeBuffers {
		q.spareBatch = batch[:0]
	}
}

// close makes push fail from now on.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}
