package flowcontrol_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/security/flowcontrol"
)

func widest(most int) flowcontrol.Width { return flowcontrol.Width{Seats: most} }

// flood has a flow ask for more than there is, in requests as wide as may be, and returns those that
// run when as many as told wait.
func (r *rig) flood(name string, n, waits int) (running []*flowcontrol.Request, rest <-chan *flowcontrol.Request) {
	r.t.Helper()
	came := make(chan *flowcontrol.Request, n)
	for range n {
		go func() {
			q, _, err := r.Begin(context.Background(), user(name, "l"), list, widest)
			if err != nil {
				r.t.Errorf("%s: %v", name, err)
			}
			came <- q
		}()
	}
	for range n - waits {
		running = append(running, <-came)
	}
	r.awaitWaiting(waits)
	return running, came
}

// TestSomeSeatsAreForOthers: one flow asks for more than there is, and some seats are left for those
// that have none. All are used where many flows ask.
func TestSomeSeatsAreForOthers(t *testing.T) {
	// 16 seats. Among 64 queues, one run in some hundred deals two flows the same pair of queues.
	r := newRig(t, 21, limited("l", 15, 1024, 2, 50))
	come := func(name string, n int) <-chan *flowcontrol.Request {
		came := make(chan *flowcontrol.Request, n)
		for range n {
			go func() {
				q, err := r.begin(name, "l")
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				came <- q
			}()
		}
		return came
	}
	flood := come("flood", 20)
	var running []*flowcontrol.Request
	for range 14 {
		running = append(running, <-flood)
	}
	r.awaitWaiting(6)
	next := func() {
		t.Helper()
		running = append(running, <-flood)
	}
	// As long as it has others that run, two seats are for who has none.
	for _, name := range []string{"modest", "another"} {
		q := <-come(name, 1)
		if n := r.waiting(); n != 6 {
			t.Fatalf("%d wait, not the flood's 6", n)
		}
		defer r.End(q)
	}
	third := come("third", 1) // the level is full
	r.awaitWaiting(7)
	r.End(running[0])
	r.End(<-third) // goes before the flood
	r.awaitWaiting(6)
	for _, q := range running[1:5] {
		r.End(q)
	}
	running = running[5:]
	for range 3 { // the level has two of the others, and leaves two: 12 of the flood
		next()
	}
	if n := r.waiting(); n != 3 {
		t.Errorf("%d wait, not 3", n)
	}
	for len(running) > 0 {
		r.End(running[0])
		if running = running[1:]; r.waiting() > 0 {
			next()
		}
	}
}

// TestSomeSeatsAreForOtherFlows: a flow that is dealt many queues, each of which has none that runs,
// has all seats of none, and keeps nobody waiting who has none.
func TestSomeSeatsAreForOtherFlows(t *testing.T) {
	r := newRig(t, 25, limited("l", 20, 64, 8, 50)) // 20 seats, three at most for each
	running, rest := r.flood("flood", 12, 6)
	r.clock.pass(time.Second) // the flood has come first
	for _, name := range []string{"modest", "another"} {
		q, err := r.begin(name, "l")
		if err != nil {
			t.Fatal(err)
		}
		if n := r.waiting(); n != 6 {
			t.Fatalf("%d wait, not the flood's 6", n)
		}
		running = append(running, q)
	}
	for left := 6; len(running) > 0; running = running[1:] {
		r.End(running[0])
		for ; left > 0 && r.waiting() < left; left-- {
			running = append(running, <-rest)
		}
	}
	if n := r.waiting(); n != 0 {
		t.Errorf("%d wait for ever", n)
	}
}

// TestTheReserveIsNotExceeded: a flow that has no seats does not get more than are left for it.
func TestTheReserveIsNotExceeded(t *testing.T) {
	r := newRig(t, 21, limited("l", 15, 64, 2, 50)) // 16 seats, two at most for each
	running, rest := r.flood("flood", 8, 1)
	r.clock.pass(time.Second) // the flood has come first
	came := make(chan *flowcontrol.Request, 1)
	go func() {
		q, _, err := r.Begin(context.Background(), user("wide", "l"), list, func(int) flowcontrol.Width { return flowcontrol.Width{Seats: 3} })
		if err != nil {
			t.Error(err)
		}
		came <- q
	}()
	r.awaitWaiting(2)
	for _, q := range running {
		r.End(q)
	}
	r.End(<-rest)
	r.End(<-came)
	r.idle()
}

// TestManyFlowsUseAllSeats: of more flows than there are queues each has a seat at once.
func TestManyFlowsUseAllSeats(t *testing.T) {
	r := newRig(t, 85, limited("l", 80, 8, 2, 50)) // 80 seats
	for i := range 80 {
		ctx, cancel := context.WithCancel(t.Context())
		came := make(chan *flowcontrol.Request)
		go func() {
			q, _, _ := r.Begin(ctx, user(fmt.Sprint(i), "l"), list, one)
			came <- q
		}()
		look := time.NewTicker(time.Millisecond)
		for begun := false; !begun; {
			select {
			case q := <-came:
				if begun = true; q != nil {
					defer r.End(q)
				}
			case <-look.C:
				if r.waiting() > 0 {
					t.Errorf("flow %d waits, though there are seats", i)
					cancel()
				}
			}
		}
		look.Stop()
		if cancel(); t.Failed() {
			return
		}
	}
}

// TestALevelWithoutSharesForgetsNobody: of a level that serves one at a time, who has been served is
// served again, however many come anew.
func TestALevelWithoutSharesForgetsNobody(t *testing.T) {
	r := newRig(t, 100, limited("l", 0, 1024, 1, 50))
	type served struct {
		name string
		q    *flowcontrol.Request
	}
	came := make(chan served)
	ask := func(name string) {
		go func() {
			q, err := r.begin(name, "l")
			if err != nil {
				t.Error(err)
			}
			came <- served{name, q}
		}()
	}
	ask("often")
	runs, often := <-came, 0
	for range 4 {
		ask("often")
	}
	r.awaitWaiting(4)
	next := func() {
		r.clock.pass(10 * time.Millisecond)
		r.End(runs.q)
		if runs = <-came; runs.name == "often" {
			often++
		}
	}
	for i := range 40 {
		ask(fmt.Sprint("once-", i))
		r.awaitWaiting(5)
		next()
	}
	if often == 0 {
		t.Error("only who is new is served")
	}
	for range 4 {
		next()
	}
	r.End(runs.q)
}

// TestNamesOfOnePrincipalShareSeats lets the editor of a namespace use many service accounts. They
// leave the reserved seats to a principal that has no request in progress.
func TestNamesOfOnePrincipalShareSeats(t *testing.T) {
	r := newRig(t, 21, limited("l", 15, 1024, 2, 50)) // 16 seats
	came := make(chan *flowcontrol.Request, 20)
	for i := range 20 {
		go func() {
			q, err := r.begin(fmt.Sprintf("system:serviceaccount:b:a%d", i), "l")
			if err != nil {
				t.Error(err)
			}
			came <- q
		}()
	}
	for range 14 {
		defer r.End(<-came)
	}
	r.awaitWaiting(6)
	q, err := r.begin("system:serviceaccount:c:a", "l")
	if err != nil {
		t.Fatal(err)
	}
	r.End(q)
}
