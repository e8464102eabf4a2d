package flowcontrol

import (
	"context"
	"time"
)

// askAgain is how often a request asks for the seats that it gave back, where a level
// has no queues.
const askAgain = 100 * time.Millisecond

// Pause gives the seats of a request back: what it waits for is its client, not the
// server. It does nothing to one that has ended, or has paused. Pause, Resume and End
// of a request are called one after the other.
func (c *Controller) Pause(r *Request) {
	if r.paused || r.over.Load() {
		return
	}
	r.paused = true
	c.stop(r)
}

// Resume waits until a request that has paused may go on. It has been let in, so it
// is not refused, however long the queues are; only the end of its context keeps it
// out, which is the error.
func (c *Controller) Resume(ctx context.Context, r *Request) error {
	if !r.paused || r.over.Load() {
		return nil
	}
	// What it leaves to others has been paid for.
	r.width = Width{Seats: r.width.Seats}
	r.work, r.started, r.turn = r.width.work(), time.Time{}, nil
	l := r.schema.level
	for !l.comeBack(r, c.Now(), func() uint64 { return c.hash(r) }) {
		if err := rest(ctx); err != nil {
			return err
		}
	}
	if r.turn != nil {
		select {
		case <-r.turn:
		case <-ctx.Done():
			if l.giveUp(r, c.Now(), reasonCancelled) {
				return ctx.Err()
			}
			<-r.turn
		}
	}
	r.paused = false
	c.runs(r)
	return nil
}

func rest(ctx context.Context) error {
	timer := time.NewTimer(askAgain)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// runs notes that a request has its seats, stop that it has them no more.
func (c *Controller) runs(r *Request) {
	r.schema.runs(r, 1)
	c.Metrics.running(executing, r.mutating, 1, r.started)
}

func (c *Controller) stop(r *Request) {
	now := c.Now()
	r.ran += now.Sub(r.started)
	r.schema.runs(r, -1)
	c.Metrics.running(executing, r.mutating, -1, now)
	r.schema.level.end(r, now)
}
