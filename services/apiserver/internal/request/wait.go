package request

import (
	"context"
	"time"
)

// comesSoon is how long something is waited for with the request's seats: replicas are that far apart.
const comesSoon = 20 * time.Millisecond

// Wait calls wait, which may block for long. The request holds none of its reserved memory
// and turns meanwhile and, after comesSoon, none of its seats. If too many requests wait
// like that, Wait cancels the context of wait and returns refused. After an error the
// request has no seats, so it must end.
func Wait(ctx context.Context, refused error, wait func(context.Context) error) error {
	defer idle(ctx)()
	within, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	back, rested := func() error { return nil }, make(chan struct{})
	late := time.AfterFunc(comesSoon, func() {
		defer close(rested)
		if b, ok := Rest(ctx, false); ok {
			back = b
		} else {
			refuse(refused)
		}
	})
	err := wait(within)
	if !late.Stop() {
		<-rested
	}
	switch {
	case err == nil:
		return back()
	case ctx.Err() == nil && within.Err() != nil:
		return context.Cause(within)
	}
	return err
}
