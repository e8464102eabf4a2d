package server

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/serving"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

// newSuspendableRequest returns a request that can release its seats if ok is true. away reports whether
// the seats are released; back acquires them.
func newSuspendableRequest(ctx context.Context, away *bool, back func() error, ok bool) *http.Request {
	ctx = requestinfo.Carry(ctx, &requestinfo.Info{})
	request.SetReleaseSeats(ctx, func(bool) (func() error, bool) {
		*away = ok
		return func() error {
			err := back()
			*away = false
			return err
		}, ok
	})
	return httptest.NewRequest("GET", "/", nil).WithContext(ctx)
}

// A request that waits for a permit holds no seats, and has both afterwards.
func TestSuspendingLimiterWaitsWithoutSeats(t *testing.T) {
	failed := errors.New("over")
	for name, c := range map[string]struct {
		begun  bool          // the response has begun
		rests  bool          // the request may release its seats
		seats  time.Duration // the wait for the seats
		failed error         // the error of that wait
	}{
		"seats are free":                {rests: true},
		"seats are late":                {rests: true, seats: 3 * maxSeatWait},
		"no seats":                      {rests: true, failed: failed},
		"no seats, late":                {rests: true, seats: 3 * maxSeatWait, failed: failed},
		"too many released their seats": {begun: true},
		"the response has begun":        {begun: true, rests: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := SuspendingLimiter{serving.NewLargeRequests(1)}
				away := false
				r := newSuspendableRequest(t.Context(), &away, func() error { time.Sleep(c.seats); return c.failed }, c.rests)
				if !limiter.EnterNow() {
					t.Fatal("no permit is free")
				}
				entered := make(chan error, 1)
				go func() { entered <- limiter.Enter(r, c.begun) }()
				synctest.Wait()
				if away != c.rests {
					t.Errorf("seats released = %t, want %t", away, c.rests)
				}
				limiter.Leave()
				if c.seats > 0 {
					time.Sleep(2 * maxSeatWait)
					synctest.Wait()
					if !limiter.EnterNow() {
						t.Fatal("the request holds the permit while it waits for its seats")
					}
					limiter.Leave()
				}
				if err := <-entered; !errors.Is(err, c.failed) {
					t.Fatalf("Enter returned %v, want %v", err, c.failed)
				}
				if away && c.failed == nil {
					t.Error("the request continued without seats")
				}
				if free := limiter.EnterNow(); free != (c.failed != nil) {
					t.Errorf("permit free = %t, want %t", free, c.failed != nil)
				} else if !free {
					limiter.Leave()
					if !limiter.EnterNow() {
						t.Error("the permit is lost")
					}
				}
			})
		})
	}
}

// A canceled request gets no permit.
func TestSuspendingLimiterReturnsCancellation(t *testing.T) {
	limiter := SuspendingLimiter{serving.NewLargeRequests(1)}
	limiter.EnterNow()
	ctx, cancel := context.WithCancel(t.Context())
	away := false
	r := newSuspendableRequest(ctx, &away, func() error { t.Error("unexpected wait for seats"); return nil }, true)
	cancel()
	if err := limiter.Enter(r, false); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want %v", err, context.Canceled)
	}
	limiter.Leave()
	if !limiter.EnterNow() {
		t.Error("the permit is lost")
	}
}

// A request that would wait while too many do is rejected.
func TestSuspendingLimiterRejectsWhenTooManyWait(t *testing.T) {
	limiter := SuspendingLimiter{serving.NewLargeRequests(1)}
	limiter.EnterNow()
	away := false
	r := newSuspendableRequest(t.Context(), &away, func() error { return nil }, false)
	if err := limiter.Enter(r, false); !apierrors.IsTooManyRequests(err) {
		t.Errorf("got error %v, want too many requests", err)
	}
	limiter.Leave()
	if !limiter.EnterNow() {
		t.Error("the permit is lost")
	}
}

// A request that finds a free permit keeps its seats.
func TestSuspendingLimiterKeepsSeatsWithoutWait(t *testing.T) {
	limiter := SuspendingLimiter{serving.NewLargeRequests(1)}
	away := false
	r := newSuspendableRequest(t.Context(), &away, func() error { t.Error("unexpected wait for seats"); return nil }, false)
	if err := limiter.Enter(r, false); err != nil || away {
		t.Errorf("got error %v, seats released = %t", err, away)
	}
	if limiter.EnterNow() {
		t.Error("the request has no permit")
	}
}

// A request whose seats are late and then fail releases its own permit once, and not that of another
// request.
func TestSuspendingLimiterReleasesOnlyItsOwnPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, failed := SuspendingLimiter{serving.NewLargeRequests(1)}, errors.New("over")
		away := false
		r := newSuspendableRequest(t.Context(), &away, func() error { time.Sleep(3 * maxSeatWait); return failed }, true)
		limiter.EnterNow()
		entered := make(chan error, 1)
		go func() { entered <- limiter.Enter(r, false) }()
		synctest.Wait()
		limiter.Leave()
		time.Sleep(2 * maxSeatWait)
		if !limiter.EnterNow() {
			t.Fatal("no permit is free")
		}
		if err := <-entered; !errors.Is(err, failed) {
			t.Errorf("got error %v, want %v", err, failed)
		}
		if limiter.EnterNow() {
			t.Error("two requests hold the permit")
		}
	})
}
