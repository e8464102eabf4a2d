package aggregation_test

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"binnacle/services/apiserver/internal/api/aggregation"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
)

// TestBreakerOpensForUnreachableServers checks that after several failures, requests are rejected
// at once until the server responds again.
func TestBreakerOpensForUnreachableServers(t *testing.T) {
	authority := newAuthority(t)
	good := authority.issueServing()
	bad := newAuthority(t).issueServing()
	server := startExtension(t, good, serveResourcesAndEcho)
	var rotated atomic.Bool
	server.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if !rotated.Load() {
			return nil, nil
		}
		c := server.TLS.Clone()
		c.Certificates = []tls.Certificate{bad}
		return c, nil
	}
	agg := start(t, nil)
	agg.register(server, authority.pem)
	if responseRecorder := agg.send(eve, httptest.NewRequest("GET", thingPath, nil)); responseRecorder.Code != http.StatusTeapot {
		t.Fatalf("got %d %s, want %v", responseRecorder.Code, responseRecorder.Body, http.StatusTeapot)
	}
	rotated.Store(true)
	server.CloseClientConnections()
	agg.eventually("requests are rejected without a connection", func() bool {
		responseRecorder := agg.send(eve, httptest.NewRequest("GET", thingPath, nil))
		if responseRecorder.Code != 503 || !strings.HasPrefix(responseRecorder.Body.String(), "error trying to reach service: ") {
			t.Fatalf("got %d %s, want 503", responseRecorder.Code, responseRecorder.Body)
		}
		return responseRecorder.Header().Get("Retry-After") == "1"
	})
	agg.eventually("binnacle_apiservice_unreachable is 1", func() bool {
		return sumMetric(t, agg, "binnacle_apiservice_unreachable") == 1
	})
	rotated.Store(false)
	agg.eventually("requests reach the server again", func() bool {
		return agg.send(eve, httptest.NewRequest("GET", thingPath, nil)).Code == http.StatusTeapot
	})
	agg.eventually("binnacle_apiservice_unreachable is 0", func() bool {
		return sumMetric(t, agg, "binnacle_apiservice_unreachable") == 0
	})
}

// TestHangingServersTimeOut checks that a request to a server that does not respond gets 503.
func TestHangingServersTimeOut(t *testing.T) { inBubble(t, hangingServersTimeOut) }

func hangingServersTimeOut(t *testing.T, n *network) {
	authority := newAuthority(t)
	var hangs atomic.Bool
	server := n.extend(t, authority.issueServing(), func(w http.ResponseWriter, r *http.Request) {
		if hangs.Load() && r.Header.Get("X-Forwarded-Uri") != "" { // availability checks still succeed
			<-r.Context().Done()
			return
		}
		serveResourcesAndEcho(w, r)
	})
	agg := n.start(t, nil)
	agg.register(server, authority.pem)
	hangs.Store(true)
	for range 2 {
		responseRecorder := agg.send(eve, httptest.NewRequest("GET", thingPath, nil))
		if responseRecorder.Code != 503 || responseRecorder.Header().Get("Retry-After") != "1" ||
			!strings.HasPrefix(responseRecorder.Body.String(), "error trying to reach service: ") {
			t.Errorf("response = %d %v %s, want 503 with Retry-After: 1 and an error about reaching the service",
				responseRecorder.Code, responseRecorder.Header(), responseRecorder.Body)
		}
	}
	hangs.Store(false)
	agg.eventually("requests reach the server again", func() bool {
		return agg.send(eve, httptest.NewRequest("GET", thingPath, nil)).Code == http.StatusTeapot
	})
}

// TestRequestsPerServerAreLimited checks that the number of requests that wait for one server is
// bounded, and that one user may have half of them. Watches that have started do not count. Neither
// watches nor waiting requests hold a seat of flow control.
func TestRequestsPerServerAreLimited(t *testing.T) { inBubble(t, requestsPerServerAreLimited) }

func requestsPerServerAreLimited(t *testing.T, n *network) {
	authority := newAuthority(t)
	waiting := make(chan bool, 8)
	server := n.extend(t, authority.issueServing(), func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.HasPrefix(r.URL.Path, "/apis/ext.test/v1/"):
			serveResources(w, r)
		case r.URL.Query().Get("watch") != "":
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		default:
			waiting <- true
			<-r.Context().Done()
		}
	})
	agg := n.start(t, func(_ *fixture, c *aggregation.Config) { c.MaxRequests = 4 })
	agg.register(server, authority.pem)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int, 8)
	sendAs := func(ctx context.Context, user *request.User, path string) {
		go func() {
			defer func() {
				_ = recover() // a response that has started is aborted
				done <- 0
			}()
			agg.send(user, httptest.NewRequest("GET", path, nil).WithContext(ctx))
		}()
	}
	send := func(ctx context.Context, path string) { sendAs(ctx, eve, path) }
	// Watches that have started do not count.
	for range 4 {
		started := make(chan bool)
		watching := requesttest.WithInfo((&requesttest.Work{OnStarted: func() { close(started) }}).With(ctx), &requestinfo.Info{
			Verb: "watch", IsResource: true, Delegate: agg.Handler(gv),
		})
		send(watching, "/apis/ext.test/v1/things?watch=1")
		<-started
	}
	// One user may have half of the requests. They suspend while they wait.
	for range 2 {
		started := make(chan bool)
		send((&requesttest.Work{OnStarted: sync.OnceFunc(func() { close(started) })}).With(ctx), thingPath)
		<-waiting
		<-started
	}
	w := agg.send(eve, httptest.NewRequest("GET", thingPath, nil))
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" ||
		w.Body.String() != "Too many requests, please try again later.\n" {
		t.Errorf("third request = %d %v %s, want %v with Retry-After: 1", w.Code, w.Header(), w.Body, http.StatusTooManyRequests)
	}
	// Other users may have the other half.
	sendAs(ctx, &request.User{Name: "ada"}, thingPath)
	<-waiting
	if w := agg.send(&request.User{Name: "bob"}, httptest.NewRequest("GET", thingPath, nil).WithContext(ended(t))); w.Code == http.StatusTooManyRequests {
		t.Errorf("third user: got status %d: %s, want the request not limited", w.Code, w.Body)
	}
	cancel()
	for range 7 {
		<-done
	}
	// A slot is free after a request has ended.
	one, end := context.WithCancel(t.Context())
	send(one, thingPath)
	<-waiting
	end()
	<-done
}

// ended returns a canceled context.
func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
