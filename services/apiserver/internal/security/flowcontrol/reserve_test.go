package flowcontrol_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/security/flowcontrol"
)

// seatsOnly is the maximum width, without final seats.
func seatsOnly(most int) flowcontrol.Width { return flowcontrol.Width{Seats: most} }

// sendFlood sends n requests of maximum width in one flow. It returns the running ones when waits
// requests wait, and a channel that delivers the waiting ones.
func (f *fixture) sendFlood(name string, requests, wantWaiting int) (running []*flowcontrol.Request, waiting <-chan *flowcontrol.Request) {
	f.t.Helper()
	acquired := make(chan *flowcontrol.Request, requests)
	for range requests {
		go func() {
			request, _, err := f.Acquire(context.Background(), newUser(name, "l"), list, seatsOnly)
			if err != nil {
				f.t.Errorf("%s: got %v, want no error", name, err)
			}
			acquired <- request
		}()
	}
	for range requests - wantWaiting {
		running = append(running, <-acquired)
	}
	f.awaitWaiting(wantWaiting)
	return running, acquired
}

// TestReserveIsForIdleFlows checks that while one flow floods the level, some seats remain for
// flows without a running request.
func TestReserveIsForIdleFlows(t *testing.T) {
	// 16 seats. Among 64 queues, one run in some hundred deals two flows the same pair of queues.
	fixture := newFixture(t, 21, newQueuingLevel("l", 15, queuing{queues: 1024, handSize: 2, queueLength: 50}))
	startRequests := func(name string, n int) <-chan *flowcontrol.Request {
		acquired := make(chan *flowcontrol.Request, n)
		for range n {
			go func() {
				request, err := fixture.acquire(name, "l")
				if err != nil {
					t.Errorf("%s: got %v, want no error", name, err)
				}
				acquired <- request
			}()
		}
		return acquired
	}
	flood := startRequests("flood", 20)
	var running []*flowcontrol.Request
	for range 14 {
		running = append(running, <-flood)
	}
	fixture.awaitWaiting(6)
	awaitNextOfFlood := func() {
		t.Helper()
		running = append(running, <-flood)
	}
	// While the flood has running requests, two seats are reserved for other flows.
	for _, name := range []string{"modest", "another"} {
		request := <-startRequests(name, 1)
		if n := fixture.waitingRequests(); n != 6 {
			t.Fatalf("got %d waiting requests, want the flood's 6", n)
		}
		defer fixture.Release(request)
	}
	third := startRequests("third", 1) // the level is full
	fixture.awaitWaiting(7)
	fixture.Release(running[0])
	fixture.Release(<-third) // is served before the flood
	fixture.awaitWaiting(6)
	for _, request := range running[1:5] {
		fixture.Release(request)
	}
	running = running[5:]
	for range 3 { // two seats of others and two reserved ones leave 12 for the flood
		awaitNextOfFlood()
	}
	if n := fixture.waitingRequests(); n != 3 {
		t.Errorf("got %d waiting requests, want 3", n)
	}
	for len(running) > 0 {
		fixture.Release(running[0])
		running = running[1:]
		if fixture.waitingRequests() > 0 {
			awaitNextOfFlood()
		}
	}
}

// TestFlowWithManyQueuesCannotUseReserve checks that a flow with many queues cannot use the reserve of
// flows without a running request.
func TestFlowWithManyQueuesCannotUseReserve(t *testing.T) {
	// The level has 20 seats, at most three per request.
	fixture := newFixture(t, 25, newQueuingLevel("l", 20, queuing{queues: 64, handSize: 8, queueLength: 50}))
	running, rest := fixture.sendFlood("flood", 12, 6)
	fixture.clock.advance(time.Second) // the flood arrived first
	for _, name := range []string{"modest", "another"} {
		request, err := fixture.acquire(name, "l")
		if err != nil {
			t.Fatal(err)
		}
		if n := fixture.waitingRequests(); n != 6 {
			t.Fatalf("got %d waiting requests, want the flood's 6", n)
		}
		running = append(running, request)
	}
	for waiting := 6; len(running) > 0; running = running[1:] {
		fixture.Release(running[0])
		for ; waiting > 0 && fixture.waitingRequests() < waiting; waiting-- {
			running = append(running, <-rest)
		}
	}
	if n := fixture.waitingRequests(); n != 0 {
		t.Errorf("%d requests wait forever, want 0", n)
	}
}

// TestReserveIsNotExceeded checks that a flow without a running request gets no more seats than are
// free.
func TestReserveIsNotExceeded(t *testing.T) {
	// The level has 16 seats, at most two per request.
	fixture := newFixture(t, 21, newQueuingLevel("l", 15, queuing{queues: 64, handSize: 2, queueLength: 50}))
	running, rest := fixture.sendFlood("flood", 8, 1)
	fixture.clock.advance(time.Second) // the flood arrived first
	acquired := make(chan *flowcontrol.Request, 1)
	go func() {
		request, _, err := fixture.Acquire(context.Background(),
			newUser("wide", "l"), list, func(int) flowcontrol.Width { return flowcontrol.Width{Seats: 3} })
		if err != nil {
			t.Error(err)
		}
		acquired <- request
	}()
	fixture.awaitWaiting(2)
	for _, request := range running {
		fixture.Release(request)
	}
	fixture.Release(<-rest)
	fixture.Release(<-acquired)
	fixture.wantIdle()
}

// TestManyFlowsUseAllSeats checks that with more flows than queues, each flow gets a seat at once.
func TestManyFlowsUseAllSeats(t *testing.T) {
	fixture := newFixture(t, 85, newQueuingLevel("l", 80, queuing{queues: 8, handSize: 2, queueLength: 50})) // 80 seats
	for i := range 80 {
		ctx, cancel := context.WithCancel(t.Context())
		acquired := make(chan *flowcontrol.Request)
		go func() {
			request, _, _ := fixture.Acquire(ctx, newUser(fmt.Sprint(i), "l"), list, oneSeat)
			acquired <- request
		}()
		poll := time.NewTicker(time.Millisecond)
		for started := false; !started; {
			select {
			case request := <-acquired:
				started = true
				if request != nil {
					defer fixture.Release(request)
				}
			case <-poll.C:
				if fixture.waitingRequests() > 0 {
					t.Errorf("flow %d: got a waiting request although seats are free, want none", i)
					cancel()
				}
			}
		}
		poll.Stop()
		cancel()
		if t.Failed() {
			return
		}
	}
}

// TestLevelWithoutSharesServesAllFlows checks that a level that serves one request at a time serves
// a known flow again, even if new flows keep arriving.
func TestLevelWithoutSharesServesAllFlows(t *testing.T) {
	fixture := newFixture(t, 100, newQueuingLevel("l", 0, queuing{queues: 1024, handSize: 1, queueLength: 50}))
	type served struct {
		name    string
		request *flowcontrol.Request
	}
	acquired := make(chan served)
	start := func(name string) {
		go func() {
			request, err := fixture.acquire(name, "l")
			if err != nil {
				t.Error(err)
			}
			acquired <- served{name, request}
		}()
	}
	start("often")
	running := <-acquired
	servedOften := 0 // number of served requests of the flow "often"
	for range 4 {
		start("often")
	}
	fixture.awaitWaiting(4)
	endOne := func() {
		fixture.clock.advance(10 * time.Millisecond)
		fixture.Release(running.request)
		running = <-acquired
		if running.name == "often" {
			servedOften++
		}
	}
	for i := range 40 {
		start(fmt.Sprint("once-", i))
		fixture.awaitWaiting(5)
		endOne()
	}
	if servedOften == 0 {
		t.Error("got no served request of the known flow after 40 new flows, want some")
	}
	for range 4 {
		endOne()
	}
	fixture.Release(running.request)
}

// TestNamesOfOnePrincipalShareSeats checks that many service accounts of one namespace leave the
// reserved seats to a principal without a running request.
func TestNamesOfOnePrincipalShareSeats(t *testing.T) {
	fixture := newFixture(t, 21, newQueuingLevel("l", 15, queuing{queues: 1024, handSize: 2, queueLength: 50})) // 16 seats
	acquired := make(chan *flowcontrol.Request, 20)
	for i := range 20 {
		go func() {
			request, err := fixture.acquire(fmt.Sprintf("system:serviceaccount:b:a%d", i), "l")
			if err != nil {
				t.Error(err)
			}
			acquired <- request
		}()
	}
	for range 14 {
		defer fixture.Release(<-acquired)
	}
	fixture.awaitWaiting(6)
	request, err := fixture.acquire("system:serviceaccount:c:a", "l")
	if err != nil {
		t.Fatal(err)
	}
	fixture.Release(request)
}
