package request

import (
	"context"
	"time"
)

// seatHoldTime is how long a waiting request keeps its seats. Most waits are for the lag between
// replicas, which is about that long.
const seatHoldTime = 20 * time.Millisecond

// Wait calls wait, which may block for long. While wait runs, the work of the request is suspended.
// After seatHoldTime it also releases its seats. If too many requests have released their seats,
// Wait cancels the context of wait and returns rejected. After an error the request has no seats,
// so it must end.
func Wait(ctx context.Context, rejected error, wait func(context.Context) error) error {
	defer Suspend(ctx)()
	waitCtx, reject := context.WithCancelCause(ctx)
	defer reject(nil)
	work := WorkFrom(ctx)
	resumeSeats := func() error { return nil }
	released := make(chan struct{})
	timer := time.AfterFunc(seatHoldTime, func() {
		defer close(released)
		if resume, ok := work.ReleaseSeats(false); ok {
			resumeSeats = resume
		} else {
			reject(rejected)
		}
	})
	err := wait(waitCtx)
	if !timer.Stop() {
		<-released
	}
	switch {
	case err == nil:
		return resumeSeats()
	case ctx.Err() == nil && waitCtx.Err() != nil:
		return context.Cause(waitCtx)
	}
	return err
}
