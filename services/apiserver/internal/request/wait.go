package request

import (
	"context"
	"time"
)

// comesSoon is how long something is waited for with the request's seats: replicas are that far apart.
const comesSoon = 20 * time.Millisecond

// Wait waits for what nobody knows whether it ever comes. Others have the request's turn meanwhile and,
// unless it comes soon, its seats. Where too many wait so already, it returns refused.
func Wait(ctx context.Context, refused error, wait func(context.Context) error) error {
	defer Aside(ctx)()
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
