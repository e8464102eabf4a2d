package overload

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/security/flowcontrol"
	"binnacle/services/apiserver/internal/server/routing"
)

// TestSeatsAreReleasedOnce checks that a request releases its seats once, not after its end. A
// request with several waits acquires the seats after the last one.
func TestSeatsAreReleasedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flow := flowcontrol.New(flowcontrol.Options{
			Seats:   1,
			MaxWait: time.Second,
			Metrics: flowcontrol.NewMetrics(prometheus.NewRegistry(), 1, 1, time.Now),
		})
		stalled := newSharedLimit(4)
		start := func() *seatHolder {
			t.Helper()
			u := newClient("a")
			op := &requestinfo.Info{Verb: "list", Path: "/x"}
			q, _, err := flow.Acquire(t.Context(), u.User, op, nil)
			if err != nil {
				t.Fatal(err)
			}
			return &seatHolder{flow: flow, stalled: stalled, ctx: t.Context(), user: u, request: q}
		}
		is := func(what string, n int, ok bool) {
			t.Helper()
			if stalled.InUse() != n || !ok {
				t.Errorf("%s: got %d stalled requests, want %d; ok = %t", what, stalled.InUse(), n, ok)
			}
		}
		a := start()
		is("first pause", 1, a.pauseForClient())
		is("second pause", 1, a.pauseForClient())
		b := start()
		if err := a.resume(); err != nil {
			t.Error(err)
		}
		is("first resume", 1, true)
		done := make(chan error, 1)
		go func() { done <- a.resume() }()
		synctest.Wait()
		is("waiting for seats", 0, true)
		is("pause while waiting for seats", 0, a.pauseForClient())
		b.close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		is("no seats while paused", 1, true)
		is("last resume", 0, a.resume() == nil)
		a.close()
		is("pause after the end", 0, a.pauseForClient())
		b.close()
		is("pause of the other after its end", 0, b.pauseForClient())
		c := start() // the seat is free
		for _, name := range []string{"w", "x", "y", "z"} {
			newClient(name).tryAcquire(stalled, 1)
		}
		is("pause with too many stalled requests", 4, !c.pauseForClient())
		if _, _, err := flow.Acquire(t.Context(), newClient("b").User, &requestinfo.Info{Verb: "list", Path: "/x"}, nil); err == nil {
			t.Error("another request got the seat")
		}
		c.close()
	})
}

// TestProfilesHandlerServesOnlyProfiles checks that the handler of profiles serves no other path.
func TestProfilesHandlerServesOnlyProfiles(t *testing.T) {
	for path, want := range map[string]int{
		"/debug/pprof/heap": 200, "/debug/pprof/": 200, "/debug/pprof//cmdline": 404, "/x": 404, "/": 404,
	} {
		w := httptest.NewRecorder()
		routing.Profiles().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != want {
			t.Errorf("%s: got %d, want %d", path, w.Code, want)
		}
	}
}

// TestTimedProfilesAreServed checks that profiles that take a given time are served.
func TestTimedProfilesAreServed(t *testing.T) {
	for _, query := range []string{"profile?seconds=1", "trace?seconds=0.01"} {
		w := httptest.NewRecorder()
		(&routing.Mux{Profiling: true}).ServeHTTP(w, httptest.NewRequest("GET", "/debug/pprof/"+query, nil))
		if name, _, _ := strings.Cut(query, "?"); w.Code != http.StatusOK ||
			!strings.Contains(w.Header().Get("Content-Disposition"), `"`+name+`"`) {
			t.Errorf("%s: got status %d: %v, want status %d and a text with %q", query, w.Code, w.Header(), http.StatusOK, `"`+name+`"`)
		}
	}
}
