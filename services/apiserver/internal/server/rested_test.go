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

// rested is a request whose seats come back when back says so.
func rested(ctx context.Context, away *bool, back func() error, ok bool) *http.Request {
	ctx = requestinfo.Carry(ctx, &requestinfo.Info{})
	request.SetRest(ctx, func(bool) (func() error, bool) {
		*away = ok
		return func() error {
			err := back()
			*away = false
			return err
		}, ok
	})
	return httptest.NewRequest("GET", "/", nil).WithContext(ctx)
}

// Who waits for a turn to be shown something has no seats, and has both when it goes on.
func TestAnswersWaitWithoutSeats(t *testing.T) {
	failed := errors.New("over")
	for name, c := range map[string]struct {
		begun  bool          // the answer has
		rests  bool          // there is room for one more who has given its seats back
		seats  time.Duration // until they are back
		failed error         // instead
	}{
		"seats are free":                  {rests: true},
		"seats are late":                  {rests: true, seats: 3 * seatsWait},
		"no seats":                        {rests: true, failed: failed},
		"no seats, late":                  {rests: true, seats: 3 * seatsWait, failed: failed},
		"too many have given theirs back": {begun: true},
		"the answer has begun":            {begun: true, rests: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				turns := Rested{serving.NewLargeRequests(1)}
				away := false
				r := rested(t.Context(), &away, func() error { time.Sleep(c.seats); return c.failed }, c.rests)
				if !turns.EnterNow() {
					t.Fatal("no turn is free")
				}
				entered := make(chan error, 1)
				go func() { entered <- turns.Enter(r, c.begun) }()
				synctest.Wait()
				if away != c.rests {
					t.Errorf("has given its seats back: %t, want %t", away, c.rests)
				}
				turns.Leave()
				if c.seats > 0 {
					time.Sleep(2 * seatsWait)
					synctest.Wait()
					if !turns.EnterNow() {
						t.Fatal("it has the turn while it waits for its seats")
					}
					turns.Leave()
				}
				if err := <-entered; !errors.Is(err, c.failed) {
					t.Fatalf("ends with %v, want %v", err, c.failed)
				}
				if away && c.failed == nil {
					t.Error("it goes on without seats")
				}
				if free := turns.EnterNow(); free != (c.failed != nil) {
					t.Errorf("a turn is free: %t", free)
				} else if !free {
					turns.Leave()
					if !turns.EnterNow() {
						t.Error("a turn is lost")
					}
				}
			})
		})
	}
}

// Who ends before it has a turn has none.
func TestAnswersEndWithoutTurns(t *testing.T) {
	turns := Rested{serving.NewLargeRequests(1)}
	turns.EnterNow()
	ctx, cancel := context.WithCancel(t.Context())
	away := false
	r := rested(ctx, &away, func() error { t.Error("its seats are waited for"); return nil }, true)
	cancel()
	if err := turns.Enter(r, false); !errors.Is(err, context.Canceled) {
		t.Errorf("ends with %v", err)
	}
	turns.Leave()
	if !turns.EnterNow() {
		t.Error("a turn is lost")
	}
}

// Who would have to wait where too many do is refused, and has nothing.
func TestAnswersAreRefused(t *testing.T) {
	turns := Rested{serving.NewLargeRequests(1)}
	turns.EnterNow()
	away := false
	r := rested(t.Context(), &away, func() error { return nil }, false)
	if err := turns.Enter(r, false); !apierrors.IsTooManyRequests(err) {
		t.Errorf("ends with %v", err)
	}
	turns.Leave()
	if !turns.EnterNow() {
		t.Error("a turn is lost")
	}
}

// Who finds a turn free has it at once, with its seats.
func TestAnswersThatNeedNotWait(t *testing.T) {
	turns := Rested{serving.NewLargeRequests(1)}
	away := false
	r := rested(t.Context(), &away, func() error { t.Error("its seats are waited for"); return nil }, false)
	if err := turns.Enter(r, false); err != nil || away {
		t.Errorf("%v, without seats: %t", err, away)
	}
	if turns.EnterNow() {
		t.Error("it has no turn")
	}
}

// Whose seats are late, and do not come in the end, has given back its own turn and not another's.
func TestLateAnswersEndNobodysTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, failed := Rested{serving.NewLargeRequests(1)}, errors.New("over")
		away := false
		r := rested(t.Context(), &away, func() error { time.Sleep(3 * seatsWait); return failed }, true)
		turns.EnterNow()
		entered := make(chan error, 1)
		go func() { entered <- turns.Enter(r, false) }()
		synctest.Wait()
		turns.Leave()
		time.Sleep(2 * seatsWait)
		if !turns.EnterNow() {
			t.Fatal("no turn is free")
		}
		if err := <-entered; !errors.Is(err, failed) {
			t.Errorf("ends with %v", err)
		}
		if turns.EnterNow() {
			t.Error("two have the turn")
		}
	})
}
