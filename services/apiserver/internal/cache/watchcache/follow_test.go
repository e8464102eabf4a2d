package watchcache_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"binnacle/services/apiserver/internal/cache/watchcache"
)

// TestFollow: who has lost the place begins anew; what ends for good is told, but not that the
// cache stops.
func TestFollow(t *testing.T) {
	broken := errors.New("broken")
	for _, test := range []struct {
		errs  []error // of the calls, the last ends it
		wants error
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
		if !errors.Is(err, test.wants) || err != nil && test.wants == nil || calls != len(test.errs) {
			t.Errorf("%v: %v after %d calls", test.errs, err, calls)
		}
		cancel()
	}
}
