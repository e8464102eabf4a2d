package backends

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// flushTime is how long what waits may take to be delivered when the server ends.
const flushTime = 10 * time.Second

// Run delivers what waits, until ctx ends, and then the rest, in order. Events that come
// later are lost.
func (b *Backend) Run(ctx context.Context) error {
	if b.queue == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	// What is on its way goes on for a while when ctx ends.
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	timer := time.AfterFunc(time.Hour, stop)
	timer.Stop()
	defer timer.Stop()
	defer context.AfterFunc(ctx, func() { timer.Reset(b.flush) })()
	var flying sync.WaitGroup
	b.collect(ctx, sending, &flying)
	b.queue.close()
	flying.Wait()
	for {
		batch := b.queue.take()
		if len(batch) == 0 {
			return ctx.Err()
		}
		b.send(sending, batch)
	}
}

// collect sends batches until ctx ends; those that are sent beside it are flying.
func (b *Backend) collect(ctx, sending context.Context, flying *sync.WaitGroup) {
	throttle := rate.NewLimiter(rate.Inf, 0)
	if b.Batch.Throttle {
		throttle = rate.NewLimiter(rate.Limit(b.Batch.QPS), b.Batch.Burst)
	}
	places := make(chan struct{}, b.parallel)
	for b.await(ctx) {
		if throttle.Wait(ctx) != nil {
			return
		}
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		batch := b.queue.take()
		if b.parallel == 1 {
			b.send(sending, batch)
			<-places
			continue
		}
		flying.Go(func() {
			b.send(sending, batch)
			<-places
		})
	}
}

// await waits until a batch is full, or its first event has waited for long enough; false
// when ctx has ended.
func (b *Backend) await(ctx context.Context) bool {
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
	if lost, err := b.to.deliver(ctx, batch); err != nil {
		b.losses.lost(b.name, lost, err)
	}
}
