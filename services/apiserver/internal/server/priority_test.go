package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/api"
	"binnacle/libs/node"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/security/flowcontrol"
)

func TestPrioritizedWaiterPrecedesAllButNodesAndServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newByteBudget(100)
		b.fair.strict = true
		now := func(name string, want bool, groups ...string) {
			t.Helper()
			leave, ok := b.tryAcquire(newClient(name, groups...), 1)
			if ok != want {
				t.Errorf("%s: admitted = %t, want %t", name, ok, want)
			}
			if ok {
				leave()
			}
		}
		var before []func()
		for _, name := range []string{"x", "y"} {
			leave, ok := b.acquire(t.Context(), newClient(name), 25)
			if !ok {
				t.Fatal("an empty budget has no bytes")
			}
			before = append(before, leave)
		}
		came := make(chan string, 2)
		wait := func(name string, size int) {
			go func() {
				if leave, ok := b.acquire(t.Context(), newClient(name), size); ok {
					came <- name
					leave()
				}
			}()
			synctest.Wait()
		}
		wait("large", 45)
		now("large", false) // waits behind its own request
		for range maxBypass + 1 {
			now("small", true)
		}
		now("small", false)
		now("system:node:n", true, node.Group)
		now("mallory", false, "others")
		now(api.UserSuitePrefix+"x", true, api.GroupSuite)
		now(api.UserSuitePrefix+"x", false)
		wait("small", 1)
		now("system:node:n", true, node.Group) // a release admits waiters
		synctest.Wait()
		if len(came) != 0 {
			t.Fatalf("%s was admitted before the prioritized waiter", <-came)
		}
		before[0]()
		synctest.Wait()
		if a, b := <-came, <-came; a+b != "largesmall" && a+b != "smalllarge" {
			t.Errorf("admitted %s and %s, want large and small", a, b)
		}
		before[1]()
		if b.fair.used != 0 || b.prioritized != nil || len(b.order) != 0 {
			t.Errorf("%d bytes are used and %v wait, want none", b.fair.used, b.order)
		}
	})
}

func TestCanceledPrioritizedWaiterUnblocksOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newByteBudget(100)
		b.fair.strict = true
		leave, _ := b.acquire(t.Context(), newClient("x"), 25)
		other, _ := b.acquire(t.Context(), newClient("y"), 25)
		small := func() bool {
			leave, ok := b.tryAcquire(newClient("small"), 1)
			if ok {
				leave()
			}
			return ok
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		nodes, end := context.WithCancel(t.Context())
		defer end()
		go b.acquire(ctx, newClient("large"), 45)
		synctest.Wait()
		for small() {
		}
		first := b.prioritized
		go b.acquire(nodes, newClient("system:node:n", node.Group), 60) // not blocked by the prioritized waiter
		synctest.Wait()
		for range 2 * maxBypass {
			if leave, ok := b.tryAcquire(newClient("system:node:m", node.Group), 1); ok {
				leave()
			}
		}
		if first == nil || b.prioritized != first {
			t.Error("another waiter became the prioritized one")
		}
		end()
		cancel()
		synctest.Wait()
		if !small() {
			t.Error("a small request is still blocked")
		}
		leave()
		other()
	})
}

func TestWaitersOfOnePrincipalAreAllAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newByteBudget(100)
		b.fair.strict = true
		leave, _ := b.acquire(t.Context(), newClient("a"), 40)
		var mu sync.Mutex // two are admitted at once
		var came []int
		var leaves []func()
		for i := range 3 {
			go func() {
				leave, ok := b.acquire(t.Context(), newClient("a"), 20)
				mu.Lock()
				defer mu.Unlock()
				if ok {
					came, leaves = append(came, i), append(leaves, leave)
				}
			}()
			synctest.Wait()
		}
		for range 3 {
			leave()
			synctest.Wait()
			if len(leaves) == 0 {
				t.Fatal("no waiter was admitted")
			}
			leave, leaves = leaves[0], leaves[1:]
		}
		leave()
		if slices.Sort(came); !slices.Equal(came, []int{0, 1, 2}) || b.fair.used != 0 || len(b.order)+len(b.waiting) != 0 {
			t.Errorf("got %v admitted and %d bytes used, want all and none", came, b.fair.used)
		}
	})
}

// A request releases its seats once, not after its end. A request with several waits acquires the seats
// after the last one.
func TestSeatsAreReleasedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flow := flowcontrol.New(flowcontrol.Options{Seats: 1, MaxWait: time.Second, Metrics: flowcontrol.NewMetrics(prometheus.NewRegistry(), 1, 1, time.Now)})
		stalled := newFairBudget(4)
		begin := func() *seatHolder {
			t.Helper()
			u, op := newClient("a"), &requestinfo.Info{Verb: "list", Path: "/x"}
			q, _, err := flow.Begin(t.Context(), u.User, op, nil)
			if err != nil {
				t.Fatal(err)
			}
			return &seatHolder{flow: flow, stalled: stalled, ctx: t.Context(), user: u, request: q}
		}
		is := func(what string, n int, ok bool) {
			t.Helper()
			if stalled.used != n || !ok {
				t.Errorf("%s: got %d stalled requests, want %d; ok = %t", what, stalled.used, n, ok)
			}
		}
		a := begin()
		is("first pause", 1, a.pause())
		is("second pause", 1, a.pause())
		b := begin()
		if err := a.resume(); err != nil {
			t.Error(err)
		}
		is("first resume", 1, true)
		over := make(chan error, 1)
		go func() { over <- a.resume() }()
		synctest.Wait()
		is("waiting for seats", 0, true)
		is("pause while waiting for seats", 0, a.pause())
		b.end()
		if err := <-over; err != nil {
			t.Error(err)
		}
		is("no seats while paused", 1, true)
		is("last resume", 0, a.resume() == nil)
		a.end()
		is("pause after the end", 0, a.pause())
		b.end()
		is("pause of the other after its end", 0, b.pause())
		c := begin() // the seat is free
		for _, name := range []string{"w", "x", "y", "z"} {
			stalled.tryAcquire(newClient(name), 1)
		}
		is("pause with too many stalled requests", 4, !c.pause())
		if _, _, err := flow.Begin(t.Context(), newClient("b").User, &requestinfo.Info{Verb: "list", Path: "/x"}, nil); err == nil {
			t.Error("another request got the seat")
		}
		c.end()
	})
}

func TestProfilesHandlerServesOnlyProfiles(t *testing.T) {
	for path, want := range map[string]int{"/debug/pprof/cmdline": 200, "/debug/pprof/": 200, "/debug/pprof//cmdline": 404, "/x": 404, "/": 404} {
		w := httptest.NewRecorder()
		Profiles().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
}

func TestTimedProfilesAreServed(t *testing.T) {
	for _, query := range []string{"profile?seconds=1", "trace?seconds=0.01"} {
		w := httptest.NewRecorder()
		(&Mux{Profiling: true}).ServeHTTP(w, httptest.NewRequest("GET", "/debug/pprof/"+query, nil))
		if name, _, _ := strings.Cut(query, "?"); w.Code != http.StatusOK || !strings.Contains(w.Header().Get("Content-Disposition"), `"`+name+`"`) {
			t.Errorf("%s: %d %v", query, w.Code, w.Header())
		}
	}
}
