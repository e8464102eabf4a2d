package health_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"binnacle/libs/serving/health"
)

func runCheck(ctx context.Context, c health.Check) error {
	return c(httptest.NewRequest(http.MethodGet, "/readyz", nil).WithContext(ctx))
}

// TestConcurrentCallersShareOneRun checks that concurrent callers share a run, and how long results
// are reused.
func TestConcurrentCallersShareOneRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		check := health.Shared(2*time.Second, time.Second, func(ctx context.Context) error {
			time.Sleep(100 * time.Millisecond)
			if runs.Add(1) == 2 {
				return errDown
			}
			return ctx.Err()
		})
		callers := func(want error) {
			t.Helper()
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() {
					if err := runCheck(t.Context(), check); !errors.Is(err, want) {
						t.Errorf("check = %v, want %v", err, want)
					}
				})
			}
			wg.Wait()
		}
		for i, step := range []struct {
			after time.Duration
			want  error
			runs  int32
		}{
			{after: 0, want: nil, runs: 1},
			{after: 900 * time.Millisecond, want: nil, runs: 1},     // the result is reused
			{after: 200 * time.Millisecond, want: errDown, runs: 2}, // the result has expired
			{after: 50 * time.Millisecond, want: errDown, runs: 2},  // a failure is reused
			{after: 51 * time.Millisecond, want: nil, runs: 3},      // for a shorter time
			{after: 2000 * time.Millisecond, want: nil, runs: 4},
		} {
			time.Sleep(step.after)
			callers(step.want)
			if n := runs.Load(); n != step.runs {
				t.Errorf("step %d: %d runs, want %d", i, n, step.runs)
			}
		}
	})
}

// TestSharedRunIsBounded checks that a run ends at its limit, and that a caller waits no longer
// than its context.
func TestSharedRunIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		check := health.Shared(2*time.Second, time.Second, func(ctx context.Context) error {
			<-ctx.Done()
			return errDown
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := runCheck(ctx, check); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("caller whose context ended got %v, want error %v", err, context.DeadlineExceeded)
		}
		if err := runCheck(t.Context(), check); !errors.Is(err, errDown) {
			t.Errorf("waiting caller got %v, want error %v", err, errDown)
		}
	})
}
