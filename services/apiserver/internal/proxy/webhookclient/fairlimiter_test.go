package webhookclient_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"binnacle/services/apiserver/internal/proxy/webhookclient"
)

// canceled returns a context that has ended.
func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// fill acquires all slots that a caller may hold, and returns the functions that release them.
func fill(t *testing.T, s *webhookclient.FairLimiter, caller string) (release []func()) {
	t.Helper()
	for {
		l, err := s.Acquire(canceled(), caller)
		if errors.Is(err, webhookclient.ErrCrowded) {
			return release
		}
		if err != nil {
			t.Fatal(err)
		}
		release = append(release, l)
	}
}

// TestFairLimiterSharesSlots checks that a caller holds at most as many slots as are free.
func TestFairLimiterSharesSlots(t *testing.T) {
	s := webhookclient.NewFairLimiter(100)
	a, b, c := fill(t, s, "a"), fill(t, s, "b"), fill(t, s, "c")
	if len(a) != 50 || len(b) != 25 || len(c) != 13 {
		t.Fatalf("got %d, %d, %d slots", len(a), len(b), len(c))
	}
	for _, release := range append(append(a, b...), c...) {
		release()
	}
	if again := fill(t, s, "a"); len(again) != 50 {
		t.Errorf("got %d slots after all were released, want 50", len(again))
	}
}

// TestTryAcquire checks that TryAcquire has the same limits as Acquire.
func TestTryAcquire(t *testing.T) {
	s := webhookclient.NewFairLimiter(4)
	var release []func()
	for {
		l, ok := s.TryAcquire("a")
		if !ok {
			break
		}
		release = append(release, l)
	}
	if len(release) != 2 {
		t.Fatalf("got %d of 4 slots, want 2", len(release))
	}
	if l, ok := s.TryAcquire("b"); !ok {
		t.Error("another caller got no slot")
	} else {
		l()
	}
	for _, l := range release {
		l()
	}
	if all := fill(t, s, "a"); len(all) != 2 {
		t.Errorf("got %d slots after all were released, want 2", len(all))
	}
}

// TestFairLimiterServesCallersInTurn checks that waiting callers alternate.
func TestFairLimiterServesCallersInTurn(t *testing.T) {
	s := webhookclient.NewFairLimiter(2)
	release, err := s.Acquire(t.Context(), "first")
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.Acquire(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	came := make(chan string)
	var wg sync.WaitGroup
	defer wg.Wait()
	more := make(chan struct{})
	defer close(more)
	for i := range 4 {
		caller := fmt.Sprint("asker", i%2)
		wg.Go(func() {
			release, err := s.Acquire(t.Context(), caller)
			if err != nil {
				t.Error(err)
				return
			}
			came <- caller
			<-more
			release()
		})
	}
	release()
	one := <-came
	other()
	if two := <-came; one == two {
		t.Errorf("%s got two slots while another caller waits", one)
	}
	more <- struct{}{}
	more <- struct{}{}
	<-came
	<-came
}

// TestFairLimiterUnderLoad checks that the limit holds, and that no slot is lost, whatever callers
// do.
func TestFairLimiterUnderLoad(t *testing.T) {
	const most = 8
	s := webhookclient.NewFairLimiter(most)
	var under atomic.Int32
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			draw := rand.New(rand.NewPCG(uint64(i), 1))
			for range 500 {
				ctx, cancel := context.WithCancel(t.Context())
				if draw.IntN(3) == 0 {
					go cancel()
				}
				release, err := s.Acquire(ctx, fmt.Sprint(draw.IntN(5)))
				if err == nil {
					if n := under.Add(1); n > most {
						t.Errorf("got %d concurrent holders, want at most %d", n, most)
					}
					under.Add(-1)
					release()
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if n := len(fill(t, s, "a")); n != most/2 {
		t.Errorf("got %d slots at the end, want %d", n, most/2)
	}
}
