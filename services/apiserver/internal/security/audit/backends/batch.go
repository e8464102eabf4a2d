package backends

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// defaultFlushTimeout is the maximum time to deliver waiting events at shutdown.
const defaultFlushTimeout = 10 * time.Second

// Run delivers queued events until ctx ends, then the rest in order. Later events are lost.
func (b *Backend) Run(ctx context.Context) error {
	if b.queue == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	// Deliveries in progress may continue for flushTimeout after ctx ends.
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	timer := time.AfterFunc(time.Hour, stop)
	timer.Stop()
	defer timer.Stop()
	defer context.AfterFunc(ctx, func() { timer.Reset(b.flushTimeout) })()
	var inFlight sync.WaitGroup
	b.collect(ctx, sending, &inFlight)
	b.queue.close()
	inFlight.Wait()
	for {
		batch := b.queue.take()
		if len(batch) == 0 {
			return ctx.Err()
		}
		b.send(sending, batch)
	}
}

// collect sends batches until ctx ends. inFlight counts the concurrent deliveries.
func (b *Backend) collect(ctx, sending context.Context, inFlight *sync.WaitGroup) {
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
		batch := b.queue.take()
		if b.maxConcurrent == 1 {
			b.send(sending, batch)
			<-slots
			continue
		}
		inFlight.Go(func() {
			b.send(sending, batch)
			<-slots
		})
	}
}

// awaitBatch waits until a batch is full or its first event has waited for MaxWait. It returns false when
// ctx has ended.
func (b *Backend) awaitBatch(ctx context.Context) bool {
	var late <-chan time.Time
	for {
		some, full := b.queue.ready()
		if full || some && b.Batch.MaxWait <= 0 {
			return ctx.Err() == nil
		}
		if some && late == nil {
			timer := time.NewTimer(b.Batch.MaxWait)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-b.queue.wake:
		case <-late:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

func (b *Backend) send(ctx context.Context, batch [][]byte) {
	defer b.queue.done(batch)
	if lost, err := b.out.deliver(ctx, batch); err != nil {
		b.losses.lost(b.name, lost, err)
	}
}
