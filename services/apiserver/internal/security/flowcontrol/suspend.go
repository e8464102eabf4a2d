package flowcontrol

import (
	"context"
	"time"
)

// retryInterval is the interval at which a suspended request retries to acquire seats in a level
// without queues.
const retryInterval = 100 * time.Millisecond

// Suspend releases the seats of a request while it waits, for example for its client. It does
// nothing if the request has ended or is suspended. Suspend, Resume and End of one request must not
// be called concurrently.
func (c *Controller) Suspend(r *Request) {
	if r.suspended || r.ended.Load() {
		return
	}
	r.suspended = true
	c.stopRunning(r)
}

// Resume waits until a suspended request has its seats again. Queue length limits do not apply,
// because the request was admitted before. It returns an error only if ctx ends; the request then
// stays suspended.
func (c *Controller) Resume(ctx context.Context, r *Request) error {
	if !r.suspended || r.ended.Load() {
		return nil
	}
	// Suspend has accounted for the final seats.
	r.width = Width{Seats: r.width.Seats}
	r.work = r.width.estimatedWork()
	r.started = time.Time{}
	r.admitted = nil
	l := r.schema.level
	for !l.readmitSuspended(r, c.Now(), func() uint64 { return c.flowHash(r) }) {
		if err := waitRetryInterval(ctx); err != nil {
			return err
		}
	}
	if r.admitted != nil {
		select {
		case <-r.admitted:
		case <-ctx.Done():
			if l.cancelWaiting(r, c.Now(), reasonCancelled) {
				return ctx.Err()
			}
			<-r.admitted
		}
	}
	r.suspended = false
	c.recordRunning(r)
	return nil
}

// waitRetryInterval waits for retryInterval. It returns an error if ctx ends first.
func waitRetryInterval(ctx context.Context) error {
	timer := time.NewTimer(retryInterval)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// recordRunning records that a request has its seats.
func (c *Controller) recordRunning(r *Request) {
	r.schema.addRunning(r, 1)
	c.Metrics.recordRunning(executingReads, r.mutating, 1, r.started)
}

// stopRunning releases the seats of a request.
func (c *Controller) stopRunning(r *Request) {
	now := c.Now()
	r.ran += now.Sub(r.started)
	r.schema.addRunning(r, -1)
	c.Metrics.recordRunning(executingReads, r.mutating, -1, now)
	r.schema.level.finish(r, now)
}
