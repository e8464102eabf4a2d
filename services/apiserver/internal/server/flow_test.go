package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/flowcontrol"
	"binnacle/services/apiserver/internal/status"
)

// TestNothingIsDoneForStreamsThatWereReset: a stream that is opened and reset at once
// costs no more than its way to here.
func TestNothingIsDoneForStreamsThatWereReset(t *testing.T) {
	reg := prometheus.NewRegistry()
	c := &Config{Metrics: NewMetrics(reg), Flow: flowcontrol.New(flowcontrol.Options{
		Seats: 10, MaxWait: time.Second, Metrics: flowcontrol.NewMetrics(reg, 10, 10, time.Now),
	})}
	for name, x := range map[string]struct {
		proto int
		over  bool
		done  bool
	}{
		"a stream": {2, false, true}, "one that was reset": {2, true, false}, "a connection of HTTP/1 that is half closed": {1, true, true},
	} {
		done := false
		h := c.fair(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { done = true }))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if x.over {
			cancel()
		}
		ctx = request.WithUser(requestinfo.With(ctx, &requestinfo.Info{Verb: "get", Path: "/version"}), somebody("root", "system:masters").User)
		r := httptest.NewRequest("GET", "/version", nil).WithContext(ctx)
		r.ProtoMajor = x.proto
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if done != x.done || !done && w.Code != status.ClosedRequest {
			t.Errorf("%s: done %t, %d", name, done, w.Code)
		}
	}
}

// TestWhoIsNeverRefused: health, and the suite's own services, also where nothing is free.
func TestWhoIsNeverRefused(t *testing.T) {
	reg := prometheus.NewRegistry()
	c := &Config{Metrics: NewMetrics(reg), Flow: flowcontrol.New(flowcontrol.Options{
		Seats: 1, MaxWait: time.Second, Metrics: flowcontrol.NewMetrics(reg, 10, 10, time.Now), Always: NeverRefused,
	}), Width: func(*requestinfo.Info, int) flowcontrol.Width { return flowcontrol.Width{Seats: 1} }}
	var inside func()
	h := c.fair(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inside() }))
	send := func(op *requestinfo.Info, u *request.User) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil).WithContext(request.WithUser(requestinfo.Carry(t.Context(), op), u)))
		return w.Code
	}
	path := func(p string) *requestinfo.Info { return &requestinfo.Info{Verb: "get", Method: "GET", Path: p} }
	inside = func() {
		inside = func() {}
		for _, x := range []struct {
			op   *requestinfo.Info
			user *request.User
			code int
		}{
			{path("/version"), somebody("a").User, 429},
			{path("/livez"), somebody("a").User, 200},
			{path("/readyz/etcd"), somebody("a").User, 200},
			{path("/healthz"), somebody("b").User, 200},
			{path("/healthzz"), somebody("b").User, 429},
			{&requestinfo.Info{Verb: "get", Method: "GET", Path: "/livez", IsResource: true}, somebody("a").User, 429},
			{path("/version"), somebody("system:binnacle:authn-webhook", "system:binnacle").User, 200},
			{path("/version"), somebody("system:binnacle:authn-webhook").User, 429},
			{path("/version"), somebody("a", "system:binnacle").User, 429},
		} {
			if code := send(x.op, x.user); code != x.code {
				t.Errorf("%s of %s in %v: %d, want %d", x.op.Path, x.user.Name, x.user.Groups, code, x.code)
			}
		}
	}
	if code := send(path("/version"), somebody("a").User); code != 200 {
		t.Errorf("the first: %d", code)
	}
}

// TestSeatsAreGivenBackMeanwhile: a request that waits itself has no seats until it goes on.
func TestSeatsAreGivenBackMeanwhile(t *testing.T) {
	reg := prometheus.NewRegistry()
	c := &Config{Metrics: NewMetrics(reg), Flow: flowcontrol.New(flowcontrol.Options{
		Seats: 1, MaxWait: time.Second, Metrics: flowcontrol.NewMetrics(reg, 10, 10, time.Now),
	}), Width: func(*requestinfo.Info, int) flowcontrol.Width { return flowcontrol.Width{Seats: 1} }}
	var inside func(ctx context.Context)
	h := c.fair(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { inside(r.Context()) }))
	send := func() int {
		ctx := request.WithUser(requestinfo.Carry(t.Context(), &requestinfo.Info{Verb: "get", Path: "/version"}), somebody("a").User)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/version", nil).WithContext(ctx))
		return w.Code
	}
	var codes []int
	inside = func(ctx context.Context) {
		inside = func(context.Context) {}
		codes = append(codes, send())
		back, ok := request.Rest(ctx, true)
		if !ok {
			t.Error("it keeps its seat")
		}
		codes = append(codes, send())
		if err := back(); err != nil {
			t.Error(err)
		}
		codes = append(codes, send())
	}
	if codes = append(codes, send()); !slices.Equal(codes, []int{429, 200, 429, 200}) {
		t.Errorf("they are answered %v", codes)
	}
	if code := send(); code != 200 {
		t.Errorf("in the end %d", code)
	}
}

// TestSeatsThatAreWaitedForTwice: who ends while seats are waited for has none when they come,
// whoever else asked for them meanwhile.
func TestSeatsThatAreWaitedForTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flow := flowcontrol.New(flowcontrol.Options{Seats: 1, MaxWait: time.Minute, Metrics: flowcontrol.NewMetrics(prometheus.NewRegistry(), 10, 10, time.Now)})
		enter := func() *flowcontrol.Request {
			r, _, err := flow.Begin(t.Context(), somebody("a").User, &requestinfo.Info{Verb: "get", Path: "/version"}, func(int) flowcontrol.Width { return flowcontrol.Width{Seats: 1} })
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		w := &turn{flow: flow, stalled: newSlots(1), ctx: t.Context(), user: somebody("a"), request: enter()}
		w.pause()
		other := enter()
		resumed := make(chan error)
		go func() { resumed <- w.resume() }()
		synctest.Wait()
		if err := w.resume(); err != nil {
			t.Error(err)
		}
		w.end()
		flow.End(other)
		<-resumed
		begin := time.Now()
		flow.End(enter())
		if time.Since(begin) > 0 {
			t.Errorf("there is a seat after %v", time.Since(begin))
		}
	})
}
