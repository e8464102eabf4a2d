package watchcache

import (
	"context"
	"errors"
	"time"
)

// followPause is before beginning anew.
const followPause = 100 * time.Millisecond

// Follow calls once, which watches until an error, and calls it anew when its place in the
// history is lost. It returns nil when the cache stops, which tells itself why, the error of
// ctx when that ends, and other errors of once.
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
