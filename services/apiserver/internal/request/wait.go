package request

import (
	"context"
	"time"
)

// comesSoon is how long a waiting request keeps its seats. Replicas differ by about that much.
const comesSoon = 20 * time.Millisecond

// Wait calls wait, which may block for long. While wait runs, the request holds none of its
// reserved memory and concurrency limits. After comesSoon it also releases its seats. If too many
// requests have released their seats, Wait cancels the context of wait and returns refused. After
// an error the request has no seats, so it must end.
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
