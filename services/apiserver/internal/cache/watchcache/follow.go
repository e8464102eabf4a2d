package watchcache

import (
	"context"
	"errors"
	"time"
)

// followPause is the delay before Follow restarts.
const followPause = 100 * time.Millisecond

// Follow calls once, which watches until an error. It calls once again if the watch lost its place
// in the history. It returns nil if the cache stops, since the cache reports the reason itself. It
// returns the error of ctx if that ends, and any other error of once.
func Follow(ctx context.Context, once func(context.Context) error) error {
	for {
		err := once(ctx)
		if errors.Is(err, ErrStopped) {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var expired *ExpiredError
		if !errors.As(err, &expired) && !errors.Is(err, ErrNotReady) {
			return err
		}
		select {
		case <-time.After(followPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
