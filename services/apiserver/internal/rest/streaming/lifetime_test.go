package streaming

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestLifetimeEndsAtFirstLimit checks that a watch ends with the first of its limits, that the end is reported
// once, also to a later onEnd, and not after release.
func TestLifetimeEndsAtFirstLimit(t *testing.T) {
	const lasts = time.Minute
	for name, tc := range map[string]struct {
		lasts time.Duration
		end   func(request, server, kind context.CancelFunc, lifetime *Lifetime)
		want  error
		calls int
	}{
		"timeout": {
			lasts: lasts,
			end:   func(_, _, _ context.CancelFunc, _ *Lifetime) { time.Sleep(lasts) },
			want:  context.DeadlineExceeded,
			calls: 1,
		},
		"timeout of zero": {
			lasts: -time.Second,
			end:   func(_, _, _ context.CancelFunc, _ *Lifetime) {},
			want:  context.DeadlineExceeded,
			calls: 1,
		},
		"the request ends": {
			lasts: lasts,
			end:   func(request, _, _ context.CancelFunc, _ *Lifetime) { request() },
			want:  context.Canceled,
			calls: 1,
		},
		"the server stops": {
			lasts: lasts,
			end:   func(_, server, _ context.CancelFunc, _ *Lifetime) { server() },
			want:  context.Canceled,
			calls: 1,
		},
		"the kind is removed": {
			lasts: lasts,
			end:   func(_, _, kind context.CancelFunc, _ *Lifetime) { kind() },
			want:  context.Canceled,
			calls: 1,
		},
		"nothing ends": {lasts: lasts, end: func(_, _, _ context.CancelFunc, _ *Lifetime) {}},
		"release": {
			lasts: lasts,
			end:   func(_, _, _ context.CancelFunc, lifetime *Lifetime) { lifetime.Release() },
			want:  context.Canceled,
		},
		"all in sequence": {
			lasts: lasts,
			end: func(request, server, kind context.CancelFunc, lifetime *Lifetime) {
				request()
				server()
				kind()
				time.Sleep(lasts)
			},
			want:  context.Canceled,
			calls: 1,
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			request, endRequest := context.WithCancel(t.Context())
			server, endServer := context.WithCancel(context.Background())
			defer endRequest()
			kind, endKind := context.WithCancel(context.Background())
			defer endServer()
			defer endKind()
			lifetime := NewLifetime(request, server, kind, tc.lasts)
			calls := 0
			lifetime.OnEnd(func() { calls++ })
			tc.end(endRequest, endServer, endKind, lifetime)
			synctest.Wait()
			if err := lifetime.Err(); !errors.Is(err, tc.want) || calls != tc.calls {
				t.Errorf("%s: got %v after %d calls, want %v, %d", name, err, calls, tc.want, tc.calls)
			}
			select {
			case <-lifetime.Done():
				if tc.want == nil {
					t.Errorf("%s: got Done closed, want it open", name)
				}
			default:
				if tc.want != nil {
					t.Errorf("%s: got Done open, want it closed", name)
				}
			}
			lifetime.Release() // otherwise synctest reports leaked goroutines
			again := 0
			lifetime.OnEnd(func() { again++ })
			if again != 1 {
				t.Errorf("%s: onEnd after the end: got %d calls, want 1", name, again)
			}
		})
	}
}
