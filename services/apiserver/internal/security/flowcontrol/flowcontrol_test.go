package flowcontrol_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/flowcontrol"
)

// TestLevelWithoutQueuesRejectsBeyondItsSeats checks that a level without queues rejects requests
// beyond its seats, and that requests of other levels are still served.
func TestLevelWithoutQueuesRejectsBeyondItsSeats(t *testing.T) {
	fixture := newFixture(t, 100, newRejectingLevel("l", 5)) // half of the shares, so 50 of 100 seats
	var held []*flowcontrol.Request
	for range 50 {
		req, err := fixture.acquire("a", "l")
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, req)
	}
	if _, err := fixture.acquire("a", "l"); rejectionReason(err) != "concurrency-limit" {
		t.Errorf("beyond the limit: got %v, want concurrency-limit", err)
	}
	if _, _, err := fixture.Acquire(t.Context(), &request.User{Name: "m", Groups: []string{"system:masters"}}, list, oneSeat); err != nil {
		t.Errorf("administrator: got %v, want no error", err)
	}
	if req, _, err := fixture.Acquire(t.Context(), &request.User{
		Name:   "x",
		Groups: []string{"system:authenticated"},
	}, list, oneSeat); err != nil {
		t.Errorf("user of another level: got %v, want no error", err)
	} else {
		fixture.Release(req)
	}
	fixture.Release(held[0])
	fixture.Release(held[0]) // counts once
	if _, err := fixture.acquire("a", "l"); err != nil {
		t.Errorf("after a request has ended: got %v, want no error", err)
	}
	if _, err := fixture.acquire("a", "l"); rejectionReason(err) != "concurrency-limit" {
		t.Errorf("beyond the limit again: got %v, want concurrency-limit", err)
	}
}

// TestLevelWithoutSharesServesOneAtATime checks that a level without seats runs one request at a
// time.
func TestLevelWithoutSharesServesOneAtATime(t *testing.T) {
	f := newFixture(t, 100, newRejectingLevel("l", 0))
	req, err := f.acquire("a", "l")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.acquire("a", "l"); rejectionReason(err) != "concurrency-limit" {
		t.Errorf("second request: got %v, want concurrency-limit", err)
	}
	f.Release(req)
	if _, err := f.acquire("a", "l"); err != nil {
		t.Error(err)
	}
}

// TestQueueLengthAndWaitAreLimited checks that a request is rejected if its queue is full, if it
// waits too long, or if it is canceled.
func TestQueueLengthAndWaitAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := newFixture(t, 2, newQueuingLevel("l", 5, queuing{queues: 1, handSize: 1, queueLength: 2})) // one seat
		held, err := fixture.acquire("a", "l")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		answers := make(chan error, 2)
		start := func(ctx context.Context) {
			req, _, err := fixture.Acquire(ctx, newUser("a", "l"), list, oneSeat)
			if err == nil {
				fixture.Release(req)
			}
			answers <- err
		}
		go start(ctx)
		fixture.awaitWaiting(1)
		go start(context.Background())
		fixture.awaitWaiting(2)
		if _, err := fixture.acquire("b", "l"); rejectionReason(err) != "queue-full" {
			t.Errorf("third request: got %v, want queue-full", err)
		}
		cancel()
		if err := <-answers; rejectionReason(err) != "cancelled" {
			t.Errorf("canceled request: got %v, want cancelled", err)
		}
		fixture.Release(held)
		if err := <-answers; err != nil {
			t.Errorf("waiting request: got %v, want no error", err)
		}
		brief, stop := context.WithTimeout(t.Context(), 40*time.Millisecond)
		defer stop()
		held, err = fixture.acquire("a", "l")
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := fixture.Acquire(brief, newUser("a", "l"), list, oneSeat); rejectionReason(err) != "time-out" || brief.Err() != nil {
			t.Errorf("request with a short deadline: got %v, want time-out; context error %v", err, brief.Err())
		}
		fixture.Release(held)
	})
}

// TestFlowWithOneRequestIsServedDuringFlood checks that a flow with one request is served soon although another flow floods
// the level.
func TestFlowWithOneRequestIsServedDuringFlood(t *testing.T) {
	fixture := newFixture(t, 2, newQueuingLevel("l", 5, queuing{queues: 64, handSize: 8, queueLength: 50})) // one seat
	held, err := fixture.acquire("flood", "l")
	if err != nil {
		t.Fatal(err)
	}
	type admission struct {
		name    string
		request *flowcontrol.Request
	}
	admitted := make(chan admission)
	start := func(name string) {
		if req, err := fixture.acquire(name, "l"); err == nil {
			admitted <- admission{name, req}
		} else {
			t.Errorf("%s: %v", name, err)
		}
	}
	const flood = 200
	for i := range flood {
		go start("flood")
		fixture.awaitWaiting(i + 1)
	}
	go start("modest")
	fixture.awaitWaiting(flood + 1)
	at := -1
	fixture.clock.advance(10 * time.Millisecond)
	fixture.Release(held)
	for i := range flood + 1 {
		next := <-admitted
		if next.name == "modest" {
			at = i
		}
		fixture.clock.advance(10 * time.Millisecond)
		fixture.Release(next.request)
	}
	// The flood has eight queues. Two flows that share a queue alternate.
	if at > 2*8+1 {
		t.Errorf("the modest flow was served as number %d of %d, want at most %d", at, flood+1, 2*8+1)
	}
}

// TestSeatsAreConserved checks that under random operations, running requests never hold more seats
// than the limit.
func TestSeatsAreConserved(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const seats = 20
		fixture := newFixture(t, seats, newQueuingLevel("l", 15, queuing{queues: 8, handSize: 3, queueLength: 4})) // its nominal limit is 15 seats
		var running []*flowcontrol.Request
		// The sum of the widths of the running requests must never exceed the nominal limit.
		widths := map[*flowcontrol.Request]int{}
		var mu sync.Mutex
		var waiters sync.WaitGroup
		inUse := func() (n int) {
			mu.Lock()
			defer mu.Unlock()
			for _, w := range widths {
				n += w
			}
			return n
		}
		rt.Repeat(map[string]func(*rapid.T){
			"begin": func(rt *rapid.T) {
				w := rapid.IntRange(1, 4).Draw(rt, "width")
				name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "user")
				ctx, cancel := context.WithCancel(context.Background())
				before := fixture.waitingRequests()
				done := make(chan struct{})
				waiters.Go(func() {
					defer close(done)
					req, _, err := fixture.Acquire(ctx, newUser(name, "l"),
						list, func(int) flowcontrol.Width { return flowcontrol.Width{Seats: w} })
					if err == nil {
						mu.Lock()
						widths[req] = w
						running = append(running, req)
						mu.Unlock()
					}
				})
				if !fixture.awaitOutcome(done, before) {
					cancel() // a waiting request would block this operation
					<-done
				}
				cancel()
			},
			"end": func(rt *rapid.T) {
				mu.Lock()
				if len(running) == 0 {
					mu.Unlock()
					rt.Skip()
				}
				i := rapid.IntRange(0, len(running)-1).Draw(rt, "which")
				req := running[i]
				running = append(running[:i], running[i+1:]...)
				delete(widths, req)
				mu.Unlock()
				fixture.Release(req)
			},
			"time": func(rt *rapid.T) {
				fixture.clock.advance(time.Duration(rapid.IntRange(0, 20000).Draw(rt, "ms")) * time.Millisecond)
			},
			"adjust": func(*rapid.T) { fixture.Adjust() },
			"": func(rt *rapid.T) {
				if n := inUse(); n > 15 {
					rt.Fatalf("got %d seats in use, want at most 15", n)
				}
			},
		})
		waiters.Wait()
		for _, req := range running {
			fixture.Release(req)
		}
		if req, err := fixture.acquire("a", "l"); err != nil {
			rt.Fatalf("request to an empty level: got error %v, want none", err)
		} else {
			fixture.Release(req)
		}
	})
}

// TestRetryAfterGrowsUnderLoad checks that Retry-After grows to its maximum under load and returns to
// 1 after a pause.
func TestRetryAfterGrowsUnderLoad(t *testing.T) {
	fixture := newFixture(t, 2, newRejectingLevel("l", 5))
	if _, err := fixture.acquire("a", "l"); err != nil {
		t.Fatal(err)
	}
	last := 0
	for range 100 {
		for range 50 {
			_, err := fixture.acquire("a", "l")
			var rejection *flowcontrol.Rejection
			if !errors.As(err, &rejection) {
				t.Fatal(err)
			}
			if rejection.RetryAfter < last {
				t.Fatalf("Retry-After fell from %d to %d seconds under load, want at least %v", last, rejection.RetryAfter, last)
			}
			last = rejection.RetryAfter
		}
		fixture.clock.advance(time.Second)
	}
	if last != 32 {
		t.Errorf("got at most %d seconds, want 32", last)
	}
	fixture.clock.advance(time.Hour)
	if _, err := fixture.acquire("a", "l"); !strings.Contains(err.Error(), "concurrency-limit") {
		t.Error(err)
	} else if rejection := new(flowcontrol.Rejection); !errors.As(err, &rejection) || rejection.RetryAfter != 1 {
		t.Errorf("after an hour: got %d seconds, want 1", rejection.RetryAfter)
	}
}

// BenchmarkUnqueued measures a request that starts without waiting.
func BenchmarkUnqueued(b *testing.B) {
	f := newFixture(b, 600, newQueuingLevel("l", 100, queuing{queues: 64, handSize: 6, queueLength: 50}))
	u := newUser("a", "l")
	b.ReportAllocs()
	for b.Loop() {
		req, _, err := f.Acquire(context.Background(), u, list, oneSeat)
		if err != nil {
			b.Fatal(err)
		}
		f.Release(req)
	}
}
