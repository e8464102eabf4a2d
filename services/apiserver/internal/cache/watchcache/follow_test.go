package watchcache_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"binnacle/services/apiserver/internal/cache/watchcache"
)

// TestFollowRestartsAfterExpiry checks that Follow calls its function again after it expired or
// the cache was not ready, returns other errors, and returns nil when the cache stops.
func TestFollowRestartsAfterExpiry(t *testing.T) {
	broken := errors.New("broken")
	for _, test := range []struct {
		errs []error // results of the calls; Follow returns after the last one
		want error
	}{
		{[]error{broken}, broken},
		{[]error{watchcache.ErrStopped}, nil},
		{[]error{&watchcache.ExpiredError{}, fmt.Errorf("at the start: %w", watchcache.ErrNotReady), broken}, broken},
		{[]error{watchcache.ErrNotReady, watchcache.ErrStopped}, nil},
		{[]error{&watchcache.ExpiredError{}, context.Canceled}, context.Canceled},
	} {
		ctx, cancel := context.WithCancel(context.Background())
		calls := 0
		err := watchcache.Follow(ctx, func(context.Context) error {
			err := test.errs[calls]
			if calls++; errors.Is(err, context.Canceled) {
				cancel()
			}
			return err
		})
		if !errors.Is(err, test.want) || err != nil && test.want == nil || calls != len(test.errs) {
			t.Errorf("%v: got %v after %d calls, want %v", test.errs, err, calls, test.want)
		}
		cancel()
	}
}
