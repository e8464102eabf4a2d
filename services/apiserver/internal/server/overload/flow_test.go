package overload

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
	"binnacle/services/apiserver/internal/request/requesttest"
	"binnacle/services/apiserver/internal/security/flowcontrol"
	"binnacle/services/apiserver/internal/status"
)

// TestResetStreamIsNotServed checks that a stream that is opened and reset at once does not reach
// the handler.
func TestResetStreamIsNotServed(t *testing.T) {
	filters := newFilters(Options{Bounds: testBounds, Flow: newFlow(10, time.Second), Width: oneSeat})
	for name, tc := range map[string]struct {
		proto       int // major version of HTTP
		canceled    bool
		wantHandled bool
	}{
		"HTTP/2":              {proto: 2, wantHandled: true},
		"HTTP/2, reset":       {proto: 2, canceled: true},
		"HTTP/1, half closed": {proto: 1, canceled: true, wantHandled: true},
	} {
		handled := false
		handler := filters.withFlowControl(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { handled = true }))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if tc.canceled {
			cancel()
		}
		ctx = requesttest.WithUser(requesttest.WithInfo(ctx, &requestinfo.Info{Verb: "get", Path: "/version"}),
			newClient("root", "system:masters").User)
		r := httptest.NewRequest("GET", "/version", nil).WithContext(ctx)
		r.ProtoMajor = tc.proto
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, r)
		if handled != tc.wantHandled || !handled && response.Code != status.ClosedRequest {
			t.Errorf("%s: got handled: %t, status %d, want handled: %t", name, handled, response.Code, tc.wantHandled)
		}
	}
}

// TestFlowControlExemptsHealthAndSuiteServices checks that health checks and the suite's services
// pass although no seat is free. Both the name and the group of a service are required.
func TestFlowControlExemptsHealthAndSuiteServices(t *testing.T) {
	flow := flowcontrol.New(flowcontrol.Options{
		Seats:    1,
		MaxWait:  time.Second,
		Metrics:  flowcontrol.NewMetrics(prometheus.NewRegistry(), 10, 10, time.Now),
		IsExempt: Exempt,
	})
	filters := newFilters(Options{Bounds: testBounds, Flow: flow, Width: oneSeat})
	// inside runs in the handler, while its request holds the only seat.
	var inside func()
	h := filters.withFlowControl(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inside() }))
	send := func(info *requestinfo.Info, u *request.User) int {
		response := httptest.NewRecorder()
		h.ServeHTTP(response, httptest.NewRequest("GET", "/", nil).WithContext(requesttest.WithUser(requesttest.WithInfo(t.Context(), info), u)))
		return response.Code
	}
	path := func(p string) *requestinfo.Info { return &requestinfo.Info{Verb: "get", Method: "GET", Path: p} }
	inside = func() {
		inside = func() {} // for the requests below
		for _, test := range []struct {
			info *requestinfo.Info
			user *request.User
			code int
		}{
			{info: path("/version"), user: newClient("a").User, code: 429},
			{info: path("/livez"), user: newClient("a").User, code: 200},
			{info: path("/readyz/etcd"), user: newClient("a").User, code: 200},
			{info: path("/healthz"), user: newClient("b").User, code: 200},
			{info: path("/healthzz"), user: newClient("b").User, code: 429},
			{info: &requestinfo.Info{Verb: "get", Method: "GET", Path: "/livez", IsResource: true}, user: newClient("a").User, code: 429},
			{info: path("/version"), user: newClient("system:binnacle:authn-webhook", "system:binnacle").User, code: 200},
			{info: path("/version"), user: newClient("system:binnacle:authn-webhook").User, code: 429},
			{info: path("/version"), user: newClient("a", "system:binnacle").User, code: 429},
		} {
			if code := send(test.info, test.user); code != test.code {
				t.Errorf("%s of %s in %v: got %d, want %d", test.info.Path, test.user.Name, test.user.Groups, code, test.code)
			}
		}
	}
	if code := send(path("/version"), newClient("a").User); code != 200 {
		t.Errorf("first request: got %d, want 200", code)
	}
}

// TestWaitingRequestReleasesSeats checks that another request can use the seats of a request that
// waits.
func TestWaitingRequestReleasesSeats(t *testing.T) {
	filters := newFilters(Options{Bounds: testBounds, Flow: newFlow(1, time.Second), Width: oneSeat})
	// inside runs in the handler, while its request holds the only seat.
	var inside func(ctx context.Context)
	h := filters.withFlowControl(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { inside(r.Context()) }))
	send := func() int {
		ctx := requesttest.WithUser(
			withWork(t.Context(), &requestinfo.Info{Verb: "get", Path: "/version"}, workLimits{}),
			newClient("a").User,
		)
		response := httptest.NewRecorder()
		h.ServeHTTP(response, httptest.NewRequest("GET", "/version", nil).WithContext(ctx))
		return response.Code
	}
	var codes []int
	inside = func(ctx context.Context) {
		inside = func(context.Context) {}
		codes = append(codes, send())
		resume, ok := request.WorkFrom(ctx).ReleaseSeats(true)
		if !ok {
			t.Error("the request did not release its seat")
		}
		codes = append(codes, send())
		if err := resume(); err != nil {
			t.Error(err)
		}
		codes = append(codes, send())
	}
	codes = append(codes, send())
	if !slices.Equal(codes, []int{429, 200, 429, 200}) {
		t.Errorf("got codes %v, want [429 200 429 200]", codes)
	}
	if code := send(); code != 200 {
		t.Errorf("after the request: got %d, want 200", code)
	}
}

// TestEndReleasesSeatsOfParallelResumes checks that a request that ends while two goroutines resume
// it holds no seats afterwards.
func TestEndReleasesSeatsOfParallelResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flow := newFlow(1, time.Minute)
		acquireSeat := func() *flowcontrol.Request {
			admitted, _, err := flow.Acquire(t.Context(), newClient("a").User, &requestinfo.Info{Verb: "get", Path: "/version"}, oneSeatOf)
			if err != nil {
				t.Fatal(err)
			}
			return admitted
		}
		seats := &seatHolder{flow: flow, stalled: newSharedLimit(1), ctx: t.Context(), user: newClient("a"), request: acquireSeat()}
		seats.pauseForClient()
		other := acquireSeat()
		resumed := make(chan error)
		go func() { resumed <- seats.resume() }()
		synctest.Wait()
		if err := seats.resume(); err != nil {
			t.Error(err)
		}
		seats.close()
		flow.Release(other)
		<-resumed
		start := time.Now()
		flow.Release(acquireSeat())
		if time.Since(start) > 0 {
			t.Errorf("the next request waited %v for a seat, want 0", time.Since(start))
		}
	})
}
