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

// TestTheFirstGoesBeforeAll but nodes and the suite's own services, once it was passed often enough.
func TestTheFirstGoesBeforeAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBodies(100)
		b.room.strict = true
		now := func(name string, want bool, groups ...string) {
			t.Helper()
			leave, ok := b.enterNow(somebody(name, groups...), 1)
			if ok != want {
				t.Errorf("%s comes in: %t", name, ok)
			}
			if ok {
				leave()
			}
		}
		var before []func()
		for _, name := range []string{"x", "y"} {
			leave, ok := b.enter(t.Context(), somebody(name), 25)
			if !ok {
				t.Fatal("no room at all")
			}
			before = append(before, leave)
		}
		came := make(chan string, 2)
		wait := func(name string, size int) {
			go func() {
				if leave, ok := b.enter(t.Context(), somebody(name), size); ok {
					came <- name
					leave()
				}
			}()
			synctest.Wait()
		}
		wait("large", 45)
		now("large", false) // behind himself
		for range maxPassed + 1 {
			now("small", true)
		}
		now("small", false)
		now("system:node:n", true, node.Group)
		now("mallory", false, "somebody's")
		now(api.UserSuitePrefix+"x", true, api.GroupSuite)
		now(api.UserSuitePrefix+"x", false)
		wait("small", 1)
		now("system:node:n", true, node.Group) // who leaves lets others in
		synctest.Wait()
		if len(came) != 0 {
			t.Fatalf("%s goes before the first", <-came)
		}
		before[0]()
		synctest.Wait()
		if a, b := <-came, <-came; a+b != "largesmall" && a+b != "smalllarge" {
			t.Errorf("%s and %s", a, b)
		}
		before[1]()
		if b.room.used != 0 || b.first != nil || len(b.order) != 0 {
			t.Errorf("%d are used, %v wait", b.room.used, b.order)
		}
	})
}

// TestTheFirstMayGo: who was passed often gives up, and others come in again.
func TestTheFirstMayGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBodies(100)
		b.room.strict = true
		leave, _ := b.enter(t.Context(), somebody("x"), 25)
		other, _ := b.enter(t.Context(), somebody("y"), 25)
		small := func() bool {
			leave, ok := b.enterNow(somebody("small"), 1)
			if ok {
				leave()
			}
			return ok
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		nodes, end := context.WithCancel(t.Context())
		defer end()
		go b.enter(ctx, somebody("large"), 45)
		synctest.Wait()
		for small() {
		}
		first := b.first
		go b.enter(nodes, somebody("system:node:n", node.Group), 60) // who is not kept out by the first
		synctest.Wait()
		for range 2 * maxPassed {
			if leave, ok := b.enterNow(somebody("system:node:m", node.Group), 1); ok {
				leave()
			}
		}
		if first == nil || b.first != first {
			t.Error("another is first by now")
		}
		end()
		cancel()
		synctest.Wait()
		if !small() {
			t.Error("nobody comes in any more")
		}
		leave()
		other()
	})
}

// TestAllOfOneUserComeIn who wait, one after the other.
func TestAllOfOneUserComeIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBodies(100)
		b.room.strict = true
		leave, _ := b.enter(t.Context(), somebody("a"), 40)
		var mu sync.Mutex // two come in at once
		var came []int
		var leaves []func()
		for i := range 3 {
			go func() {
				leave, ok := b.enter(t.Context(), somebody("a"), 20)
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
				t.Fatal("nobody comes in")
			}
			leave, leaves = leaves[0], leaves[1:]
		}
		leave()
		if slices.Sort(came); !slices.Equal(came, []int{0, 1, 2}) || b.room.used != 0 || len(b.order)+len(b.waiting) != 0 {
			t.Errorf("%v came, %d are used", came, b.room.used)
		}
	})
}

// TestSeatsAreGivenBackOnce, whenever nobody takes the answer, and not by what is over. A request
// that waits for several things has none before all have come.
func TestSeatsAreGivenBackOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flow := flowcontrol.New(flowcontrol.Options{Seats: 1, MaxWait: time.Second, Metrics: flowcontrol.NewMetrics(prometheus.NewRegistry(), 1, 1, time.Now)})
		stalled := newSlots(4)
		begin := func() *turn {
			t.Helper()
			u, op := somebody("a"), &requestinfo.Info{Verb: "list", Path: "/x"}
			q, _, err := flow.Begin(t.Context(), u.User, op, nil)
			if err != nil {
				t.Fatal(err)
			}
			return &turn{flow: flow, stalled: stalled, ctx: t.Context(), user: u, request: q}
		}
		is := func(what string, n int, ok bool) {
			t.Helper()
			if stalled.used != n || !ok {
				t.Errorf("%s: %d are stalled, not %d; %t", what, stalled.used, n, ok)
			}
		}
		a := begin()
		is("it pauses", 1, a.pause())
		is("it waits for something else besides", 1, a.pause())
		b := begin()
		if err := a.resume(); err != nil {
			t.Error(err)
		}
		is("it still waits for the other", 1, true)
		over := make(chan error, 1)
		go func() { over <- a.resume() }()
		synctest.Wait()
		is("it waits for its seats", 0, true)
		is("it pauses while it does", 0, a.pause())
		b.end()
		if err := <-over; err != nil {
			t.Error(err)
		}
		is("it has no seats as it waits", 1, true)
		is("it goes on", 0, a.resume() == nil)
		a.end()
		is("it is over", 0, a.pause())
		b.end()
		is("so is the other", 0, b.pause())
		c := begin() // the seat is there still
		for _, name := range []string{"w", "x", "y", "z"} {
			stalled.enter(somebody(name), 1)
		}
		is("it pauses though too many have", 4, !c.pause())
		if _, _, err := flow.Begin(t.Context(), somebody("b").User, &requestinfo.Info{Verb: "list", Path: "/x"}, nil); err == nil {
			t.Error("another has its seat")
		}
		c.end()
	})
}

// TestProfilesAlone are served where nothing else is.
func TestProfilesAlone(t *testing.T) {
	for path, want := range map[string]int{"/debug/pprof/cmdline": 200, "/debug/pprof/": 200, "/debug/pprof//cmdline": 404, "/x": 404, "/": 404} {
		w := httptest.NewRecorder()
		Profiles().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
}

// TestProfilesOverTime are what they are called.
func TestProfilesOverTime(t *testing.T) {
	for _, query := range []string{"profile?seconds=1", "trace?seconds=0.01"} {
		w := httptest.NewRecorder()
		(&Mux{Profiling: true}).ServeHTTP(w, httptest.NewRequest("GET", "/debug/pprof/"+query, nil))
		if name, _, _ := strings.Cut(query, "?"); w.Code != http.StatusOK || !strings.Contains(w.Header().Get("Content-Disposition"), `"`+name+`"`) {
			t.Errorf("%s: %d %v", query, w.Code, w.Header())
		}
	}
}
