package reverseproxy_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/proxy/clientcerts"
	"binnacle/services/apiserver/internal/proxy/responselimit"
	"binnacle/services/apiserver/internal/proxy/reverseproxy"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
)

// pipeListener is an in-memory network with one server, which accepts the connections of dial.
type pipeListener struct {
	conns       chan net.Conn
	closed      chan struct{}
	close       func()
	isCut       atomic.Bool  // if set, dial fails
	connections atomic.Int32 // calls of dial
}

func (x *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-x.conns:
		return c, nil
	case <-x.closed:
		return nil, net.ErrClosed
	}
}

func (x *pipeListener) Close() error { x.close(); return nil }

func (x *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

func (x *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	x.connections.Add(1)
	if x.isCut.Load() {
		return nil, errUnreachable
	}
	clientConn, serverConn := net.Pipe()
	select {
	case x.conns <- serverConn:
		return clientConn, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// fixture is a Proxy for a server in memory. It records the probes and changes of the breaker.
type fixture struct {
	*pipeListener
	*reverseproxy.Proxy
	t      *testing.T
	stop   context.CancelFunc
	probes sync.WaitGroup

	mu               sync.Mutex
	probeTimes       []time.Time
	changes          []bool        // of the breaker; true means opened
	alive            atomic.Bool   // whether probes succeed
	slow             time.Duration // of a probe
	runningProbes    atomic.Int32
	maxRunningProbes atomic.Int32
}

// startProxy starts a proxy and a server that responds with serve. maxRequests bounds the
// concurrent requests; 0 means no limit.
func startProxy(t *testing.T, maxRequests int, serve http.HandlerFunc) *fixture {
	x := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	x.close = sync.OnceFunc(func() { close(x.closed) })
	b := &fixture{pipeListener: x, t: t}
	b.alive.Store(true)
	server := &http.Server{Handler: serve}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(x) })
	pool := clientcerts.Fixed(&http.Transport{DialContext: x.dial})
	ctx, cancel := context.WithCancel(context.Background())
	b.stop = cancel
	b.Proxy = &reverseproxy.Proxy{
		Locate: func(_ context.Context, path string) (*url.URL, error) {
			return &url.URL{Scheme: "http", Host: "there", Path: path}, nil
		},
		Connections: pool,
		LongRunning: requestinfo.LongRunning,
		Pages:       responselimit.NewPageLimiter(16),
		Logger:      slog.New(slog.DiscardHandler),
		Breaker: reverseproxy.NewBreaker(ctx, &b.probes,
			reverseproxy.BreakerConfig{
				Probe:       b.probe,
				MaxRequests: maxRequests,
				OnChange: func(reason error) {
					b.mu.Lock()
					defer b.mu.Unlock()
					b.changes = append(b.changes, reason != nil)
				},
			}),
	}
	t.Cleanup(func() {
		cancel()
		b.probes.Wait()
		pool.CloseIdleConnections()
		_ = server.Close()
		serving.Wait()
	})
	return b
}

// probe is the probe of the breaker. It takes the time slow and fails unless alive is set.
func (b *fixture) probe(ctx context.Context) error {
	b.mu.Lock()
	b.probeTimes = append(b.probeTimes, time.Now())
	b.mu.Unlock()
	b.maxRunningProbes.Store(max(b.maxRunningProbes.Load(), b.runningProbes.Add(1)))
	defer b.runningProbes.Add(-1)
	select {
	case <-time.After(b.slow):
	case <-ctx.Done():
		return ctx.Err()
	}
	if !b.alive.Load() {
		return errors.New("it does not live")
	}
	return nil
}

func (b *fixture) probesAndChanges() (probes int, changes []bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.probeTimes), slices.Clone(b.changes)
}

// request proxies a request of a user. A nil op is a get, and header may be nil.
func (b *fixture) request(ctx context.Context, user string, op *requestinfo.Info, header http.Header) *httptest.ResponseRecorder {
	if op == nil {
		op = &requestinfo.Info{Verb: "get", IsResource: true, Delegate: http.NotFoundHandler()}
	}
	r := httptest.NewRequest("GET", "/apis/g/v/things", nil)
	if header != nil {
		r.Header = header
	}
	w := httptest.NewRecorder()
	b.Serve(w, r.WithContext(requesttest.WithInfo(requesttest.WithUser(ctx, &request.User{Name: user}), op)), nil)
	return w
}

// checkResponse checks the status code, and the body unless body is empty.
func (b *fixture) checkResponse(w *httptest.ResponseRecorder, code int, body string) {
	b.t.Helper()
	if w.Code != code || body != "" && w.Body.String() != body {
		b.t.Errorf("got %d %q, want %d %q", w.Code, w.Body, code, body)
	}
}

func respondFine(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "fine") }

func watch() *requestinfo.Info {
	return &requestinfo.Info{Verb: "watch", IsResource: true, Delegate: http.NotFoundHandler()}
}

// respondWhenCanceled responds when the request ends.
func respondWhenCanceled(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// TestRequestWithoutUserIsNotProxied checks that neither a request without a user nor one whose
// server has no location is proxied.
func TestRequestWithoutUserIsNotProxied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startProxy(t, 0, respondFine)
		w := httptest.NewRecorder()
		b.Serve(w, httptest.NewRequest("GET", "/apis/g/v/things", nil), nil)
		b.checkResponse(w, http.StatusInternalServerError, "missing user\n")
		if n := b.connections.Load(); n != 0 {
			t.Errorf("got %d connections, want none", n)
		}
		b.Locate = func(context.Context, string) (*url.URL, error) { return nil, errors.New("moved") }
		b.checkResponse(b.request(t.Context(), "a", nil, nil), http.StatusServiceUnavailable, "service unavailable\n")
	})
}

// TestFailedProbesOpenBreaker checks that three consecutive failures start a single probe per
// second, that the breaker rejects requests while probes fail, and that it closes afterwards.
func TestFailedProbesOpenBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := startProxy(t, 0, respondFine)
		fixture.slow = 100 * time.Millisecond
		fixture.isCut.Store(true)
		fixture.alive.Store(false)
		fail := func(probes int) {
			t.Helper()
			for range probes {
				fixture.checkResponse(fixture.request(t.Context(), "a", nil, nil), http.StatusServiceUnavailable, "")
			}
			synctest.Wait()
		}

		// 1. Only three consecutive failures start probes.
		fail(2)
		fixture.isCut.Store(false)
		fixture.checkResponse(fixture.request(t.Context(), "a", nil, nil), http.StatusOK, "fine")
		fixture.Connections.CloseIdleConnections()
		fixture.isCut.Store(true)
		fail(2)
		if probes, _ := fixture.probesAndChanges(); probes != 0 {
			t.Fatalf("got %d probes after two consecutive failures, want none", probes)
		}

		// 2. One probe runs at a time, once per second. The first failed one opens the breaker.
		fail(3) // during the first probe
		if probes := fixture.maxRunningProbes.Load(); probes != 1 {
			t.Errorf("got %d concurrent probes, want 1", probes)
		}
		time.Sleep(10500 * time.Millisecond)
		probes, changes := fixture.probesAndChanges()
		if probes != 10 || !slices.Equal(changes, []bool{true}) || fixture.Breaker.Open() == nil {
			t.Errorf("got %d probes in ten seconds, want 10; changes %v", probes, changes)
		}

		// 3. An open breaker rejects requests without a connection.
		asked := fixture.connections.Load()
		w := fixture.request(t.Context(), "a", nil, nil)
		fixture.checkResponse(w, http.StatusServiceUnavailable, "error trying to reach service: it does not live\n")
		if w.Header().Get("Retry-After") != "1" || fixture.connections.Load() != asked {
			t.Errorf("got headers %v after %d connections, want Retry-After: 1 after none", w.Header(), fixture.connections.Load()-asked)
		}

		// 4. A successful probe closes the breaker and ends the probes.
		fixture.isCut.Store(false)
		fixture.alive.Store(true)
		time.Sleep(2 * time.Second)
		fixture.checkResponse(fixture.request(t.Context(), "a", nil, nil), http.StatusOK, "fine")
		probes, changes = fixture.probesAndChanges()
		if !slices.Equal(changes, []bool{true, false}) || fixture.Breaker.Open() != nil {
			t.Errorf("got breaker changes %v, want it opened and closed again", changes)
		}
		time.Sleep(time.Minute)
		if later, _ := fixture.probesAndChanges(); later != probes {
			t.Errorf("got %d probes of a healthy server, want none", later-probes)
		}

		// 5. Failures before the recovery do not count.
		fixture.Connections.CloseIdleConnections()
		fixture.isCut.Store(true)
		fail(2)
		if later, _ := fixture.probesAndChanges(); later != probes {
			t.Errorf("got %d probes after two failures since the recovery, want none: earlier failures must not count", later-probes)
		}
		fail(1)
		if later, _ := fixture.probesAndChanges(); later != probes+1 {
			t.Errorf("got %d probes after three failures since the recovery, want 1", later-probes)
		}
		time.Sleep(time.Second) // a successful probe changes nothing
		if _, changes := fixture.probesAndChanges(); len(changes) != 2 {
			t.Errorf("got changes %v, want 2", changes)
		}
	})
}

// TestCanceledRequestsDoNotStartProbes checks that a request that its client cancels does not count
// as a failure of the server.
func TestCanceledRequestsDoNotStartProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startProxy(t, 0, respondWhenCanceled)
		for range 4 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			b.request(ctx, "a", nil, nil)
		}
		synctest.Wait()
		if n, _ := b.probesAndChanges(); n != 0 {
			t.Errorf("got %d probes, want none", n)
		}
	})
}

// TestNoProbesAfterStop checks that no probe starts after the context of the breaker has ended, and
// that OnChange is not called.
func TestNoProbesAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := startProxy(t, 0, respondFine)
		fixture.slow = time.Second
		fixture.isCut.Store(true)
		for range 3 {
			fixture.request(t.Context(), "a", nil, nil)
		}
		synctest.Wait()
		fixture.stop()
		fixture.probes.Wait()
		for range 3 {
			fixture.request(t.Context(), "a", nil, nil)
		}
		time.Sleep(time.Minute)
		if n, changes := fixture.probesAndChanges(); n != 1 || len(changes) != 0 {
			t.Errorf("got %d probes and changes %v, want 1 and none", n, changes)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		fixture := startProxy(t, 0, respondFine)
		fixture.isCut.Store(true)
		fixture.stop()
		for range 3 {
			fixture.request(t.Context(), "a", nil, nil)
		}
		synctest.Wait()
		if n, _ := fixture.probesAndChanges(); n != 0 {
			t.Errorf("got %d probes, want none", n)
		}
	})
}

// TestWatchCountsUntilAnswered checks that a watch releases its slot exactly once, when the server
// responds. A principal cannot use the slots of others.
func TestWatchCountsUntilAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := startProxy(t, 2, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Hangs") != "" {
				respondWhenCanceled(w, r)
				return
			}
			respondFine(w, r)
		})
		for range 4 {
			fixture.checkResponse(fixture.request(t.Context(), "a", watch(), nil), http.StatusOK, "fine")
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		waiting := http.Header{"X-Hangs": {"1"}}
		go fixture.request(ctx, "a", nil, waiting.Clone())
		synctest.Wait()
		fixture.checkResponse(fixture.request(t.Context(), "a", nil, nil),
			http.StatusTooManyRequests, "Too many requests, please try again later.\n")
		fixture.checkResponse(fixture.request(t.Context(), "b", nil, nil), http.StatusOK, "fine")
		cancel()
		synctest.Wait()
		fixture.checkResponse(fixture.request(t.Context(), "a", nil, nil), http.StatusOK, "fine")
	})
}

// TestZeroMaxRequestsMeansNoLimit checks that any number of requests may wait for the server.
func TestZeroMaxRequestsMeansNoLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startProxy(t, 0, respondWhenCanceled)
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		for range 50 {
			done.Go(func() {
				if w := b.request(ctx, "a", nil, nil); w.Code == http.StatusTooManyRequests {
					t.Error(w.Body)
				}
			})
		}
		synctest.Wait()
		if n := b.connections.Load(); n != 50 {
			t.Errorf("got %d requests in progress, want 50", n)
		}
		cancel()
		done.Wait()
	})
}

// TestUpgradesAcquireSlot checks that only upgrades acquire a slot of AcquireSlot, that they
// release it, and that an upgrade without a slot is rejected.
func TestUpgradesAcquireSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := startProxy(t, 0, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) })
		upgrade := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"odd/1"}}
		fixture.checkResponse(fixture.request(t.Context(), "a", nil, upgrade.Clone()), http.StatusForbidden, "no\n")
		acquired, released := 0, 0
		fixture.AcquireSlot = func(*http.Request) (func(), error) {
			acquired++
			return func() { released++ }, nil
		}
		fixture.checkResponse(fixture.request(t.Context(), "a", nil, nil), http.StatusForbidden, "no\n")
		if acquired != 0 {
			t.Errorf("request without upgrade: got %d slots acquired, want none", acquired)
		}
		fixture.checkResponse(fixture.request(t.Context(), "a", nil, upgrade.Clone()), http.StatusForbidden, "no\n")
		if acquired != 1 || released != 1 {
			t.Errorf("got %d slots acquired, %d released; want 1", acquired, released)
		}
		fixture.AcquireSlot = func(*http.Request) (func(), error) { return nil, errors.New("no slot") }
		asked := fixture.connections.Load()
		fixture.checkResponse(fixture.request(t.Context(), "a", nil, upgrade.Clone()), http.StatusTooManyRequests, "")
		if fixture.connections.Load() != asked {
			t.Error("upgrade without a slot: got a connection to the server, want none")
		}
	})
}
