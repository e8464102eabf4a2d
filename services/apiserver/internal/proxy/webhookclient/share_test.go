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

// over is a context that has ended.
func over() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// fill takes all that an asker can have, and returns what gives them back.
func fill(t *testing.T, s *webhookclient.Share, asker string) (leave []func()) {
	t.Helper()
	for {
		l, err := s.Enter(over(), asker)
		if errors.Is(err, webhookclient.ErrCrowded) {
			return leave
		}
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, l)
	}
}

// TestShare: each has as many as are free, at most.
func TestShare(t *testing.T) {
	s := webhookclient.NewShare(100)
	a, b, c := fill(t, s, "a"), fill(t, s, "b"), fill(t, s, "c")
	if len(a) != 50 || len(b) != 25 || len(c) != 13 {
		t.Fatalf("%d, %d, %d", len(a), len(b), len(c))
	}
	for _, leave := range append(append(a, b...), c...) {
		leave()
	}
	if again := fill(t, s, "a"); len(again) != 50 {
		t.Errorf("%d after all have left", len(again))
	}
}

// TestWhoDoesNotWait comes in as who waits does, and not before him.
func TestWhoDoesNotWait(t *testing.T) {
	s := webhookclient.NewShare(4)
	var leave []func()
	for {
		l, ok := s.EnterNow("a")
		if !ok {
			break
		}
		leave = append(leave, l)
	}
	if len(leave) != 2 {
		t.Fatalf("one has %d of 4", len(leave))
	}
	if l, ok := s.EnterNow("b"); !ok {
		t.Error("another has none")
	} else {
		l()
	}
	for _, l := range leave {
		l()
	}
	if all := fill(t, s, "a"); len(all) != 2 {
		t.Errorf("%d after all have left", len(all))
	}
}

// TestTurnsOfAskers: who waits comes in when there is room, one of each asker in turn.
func TestTurnsOfAskers(t *testing.T) {
	s := webhookclient.NewShare(2)
	leave, err := s.Enter(t.Context(), "first")
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.Enter(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	came := make(chan string)
	var wg sync.WaitGroup
	defer wg.Wait()
	more := make(chan struct{})
	defer close(more)
	for i := range 4 {
		asker := fmt.Sprint("asker", i%2)
		wg.Go(func() {
			leave, err := s.Enter(t.Context(), asker)
			if err != nil {
				t.Error(err)
				return
			}
			came <- asker
			<-more
			leave()
		})
	}
	leave()
	one := <-came
	other()
	if two := <-came; one == two {
		t.Errorf("%s twice while another waits", one)
	}
	more <- struct{}{}
	more <- struct{}{}
	<-came
	<-came
}

// TestShareUnderWay: however they come, leave and give up, there are never more than there may be,
// and all are free in the end.
func TestShareUnderWay(t *testing.T) {
	const most = 8
	s := webhookclient.NewShare(most)
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
				leave, err := s.Enter(ctx, fmt.Sprint(draw.IntN(5)))
				if err == nil {
					if n := under.Add(1); n > most {
						t.Errorf("%d at a time", n)
					}
					under.Add(-1)
					leave()
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if n := len(fill(t, s, "a")); n != most/2 {
		t.Errorf("%d are free for one in the end", n)
	}
}
