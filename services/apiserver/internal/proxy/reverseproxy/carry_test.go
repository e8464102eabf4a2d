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
)

// wire is a network of one server, within a bubble.
type wire struct {
	conns chan net.Conn
	over  chan struct{}
	close func()
	cut   atomic.Bool // nobody is reached
	asked atomic.Int32
}

func (x *wire) Accept() (net.Conn, error) {
	select {
	case c := <-x.conns:
		return c, nil
	case <-x.over:
		return nil, net.ErrClosed
	}
}

func (x *wire) Close() error { x.close(); return nil }

func (x *wire) Addr() net.Addr { return &net.TCPAddr{} }

func (x *wire) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	x.asked.Add(1)
	if x.cut.Load() {
		return nil, errNobody
	}
	here, there := net.Pipe()
	select {
	case x.conns <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// bench is a way to a server, and what becomes of it.
type bench struct {
	*wire
	*reverseproxy.Way
	t      *testing.T
	stop   context.CancelFunc
	probes sync.WaitGroup

	mu     sync.Mutex
	probed []time.Time
	turned []bool // open, closed
	alive  atomic.Bool
	slow   time.Duration // of a probe
	under  atomic.Int32  // probes
	most   atomic.Int32
}

// start has a server answer as serve does; of its requests most may be under way.
func start(t *testing.T, most int, serve http.HandlerFunc) *bench {
	x := &wire{conns: make(chan net.Conn), over: make(chan struct{})}
	x.close = sync.OnceFunc(func() { close(x.over) })
	b := &bench{wire: x, t: t}
	b.alive.Store(true)
	server := &http.Server{Handler: serve}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(x) })
	pool := clientcerts.Fixed(&http.Transport{DialContext: x.dial})
	ctx, cancel := context.WithCancel(context.Background())
	b.stop = cancel
	b.Way = &reverseproxy.Way{
		Locate: func(_ context.Context, path string) (*url.URL, error) {
			return &url.URL{Scheme: "http", Host: "there", Path: path}, nil
		},
		Connections: pool, LongRunning: requestinfo.LongRunning, Pages: responselimit.NewRoom(), Logger: slog.New(slog.DiscardHandler),
		Breaker: reverseproxy.NewBreaker(ctx, &b.probes, reverseproxy.BreakerConfig{Probe: b.probe, Most: most, Turned: func(reason error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.turned = append(b.turned, reason != nil)
		}}),
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

func (b *bench) probe(ctx context.Context) error {
	b.mu.Lock()
	b.probed = append(b.probed, time.Now())
	b.mu.Unlock()
	b.most.Store(max(b.most.Load(), b.under.Add(1)))
	defer b.under.Add(-1)
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

func (b *bench) found() (probes int, turned []bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.probed), slices.Clone(b.turned)
}

// ask carries a request of a user on.
func (b *bench) ask(ctx context.Context, user string, op *requestinfo.Info, header http.Header) *httptest.ResponseRecorder {
	if op == nil {
		op = &requestinfo.Info{Verb: "get", IsResource: true, Foreign: http.NotFoundHandler()}
	}
	r := httptest.NewRequest("GET", "/apis/g/v/things", nil)
	if header != nil {
		r.Header = header
	}
	w := httptest.NewRecorder()
	b.Carry(w, r.WithContext(requestinfo.With(request.WithUser(ctx, &request.User{Name: user}), op)), nil)
	return w
}

func (b *bench) want(w *httptest.ResponseRecorder, code int, body string) {
	b.t.Helper()
	if w.Code != code || body != "" && w.Body.String() != body {
		b.t.Errorf("%d %q, want %d %q", w.Code, w.Body, code, body)
	}
}

func fine(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "fine") }

func watch() *requestinfo.Info {
	return &requestinfo.Info{Verb: "watch", IsResource: true, Foreign: http.NotFoundHandler()}
}

// hangs until the request ends.
func hangs(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// TestNobodyIsCarriedOn: of whom this server does not know who asks, no other is asked.
func TestNobodyIsCarriedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 0, fine)
		w := httptest.NewRecorder()
		b.Carry(w, httptest.NewRequest("GET", "/apis/g/v/things", nil), nil)
		b.want(w, http.StatusInternalServerError, "missing user\n")
		if n := b.asked.Load(); n != 0 {
			t.Errorf("asked %d times", n)
		}
		b.Locate = func(context.Context, string) (*url.URL, error) { return nil, errors.New("moved") }
		b.want(b.ask(t.Context(), "a", nil, nil), http.StatusServiceUnavailable, "service unavailable\n")
	})
}

// TestBreakers: after three failures in a row a server is probed by one at a time, once a second
// until it lives, and is not asked meanwhile.
func TestBreakers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 0, fine)
		b.slow = 100 * time.Millisecond
		b.cut.Store(true)
		b.alive.Store(false)
		fail := func(n int) {
			t.Helper()
			for range n {
				b.want(b.ask(t.Context(), "a", nil, nil), http.StatusServiceUnavailable, "")
			}
			synctest.Wait()
		}
		fail(2)
		b.cut.Store(false)
		b.want(b.ask(t.Context(), "a", nil, nil), http.StatusOK, "fine")
		b.Connections.CloseIdleConnections()
		b.cut.Store(true)
		fail(2)
		if n, _ := b.found(); n != 0 {
			t.Fatalf("probed after two failures in a row")
		}
		fail(3) // while the probe of the first of them is under way
		if n := b.most.Load(); n != 1 {
			t.Errorf("%d probes at a time", n)
		}
		time.Sleep(10500 * time.Millisecond)
		n, turned := b.found()
		if n != 10 || !slices.Equal(turned, []bool{true}) || b.Breaker.Open() == nil {
			t.Errorf("%d probes in some ten seconds, %v", n, turned)
		}
		asked := b.asked.Load()
		w := b.ask(t.Context(), "a", nil, nil)
		b.want(w, http.StatusServiceUnavailable, "error trying to reach service: it does not live\n")
		if w.Header().Get("Retry-After") != "1" || b.asked.Load() != asked {
			t.Errorf("%v, asked %d times more", w.Header(), b.asked.Load()-asked)
		}
		b.cut.Store(false)
		b.alive.Store(true)
		time.Sleep(2 * time.Second)
		b.want(b.ask(t.Context(), "a", nil, nil), http.StatusOK, "fine")
		n, turned = b.found()
		if !slices.Equal(turned, []bool{true, false}) || b.Breaker.Open() != nil {
			t.Errorf("it lives: %v", turned)
		}
		time.Sleep(time.Minute)
		if later, _ := b.found(); later != n {
			t.Errorf("%d probes more of a server that lives", later-n)
		}
		b.Connections.CloseIdleConnections()
		b.cut.Store(true)
		fail(2)
		if later, _ := b.found(); later != n {
			t.Error("what failed before it lived counts")
		}
		fail(1)
		if later, _ := b.found(); later != n+1 {
			t.Error("not probed again")
		}
		time.Sleep(time.Second) // a probe that is answered says nothing new
		if _, turned := b.found(); len(turned) != 2 {
			t.Errorf("%v", turned)
		}
	})
}

// TestClientsThatGo are no failures of the server.
func TestClientsThatGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 0, hangs)
		for range 4 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			b.ask(ctx, "a", nil, nil)
		}
		synctest.Wait()
		if n, _ := b.found(); n != 0 {
			t.Errorf("%d probes", n)
		}
	})
}

// TestTheEndOfProbes: after it neither is a server probed nor does anybody learn what becomes of it.
func TestTheEndOfProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 0, fine)
		b.slow = time.Second
		b.cut.Store(true)
		for range 3 {
			b.ask(t.Context(), "a", nil, nil)
		}
		synctest.Wait()
		b.stop()
		b.probes.Wait()
		for range 3 {
			b.ask(t.Context(), "a", nil, nil)
		}
		time.Sleep(time.Minute)
		if n, turned := b.found(); n != 1 || len(turned) != 0 {
			t.Errorf("%d probes, %v", n, turned)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 0, fine)
		b.cut.Store(true)
		b.stop()
		for range 3 {
			b.ask(t.Context(), "a", nil, nil)
		}
		synctest.Wait()
		if n, _ := b.found(); n != 0 {
			t.Errorf("%d probes", n)
		}
	})
}

// TestWatchesCountUntilTheyAreAnswered: once each, so that the bound holds for others afterwards.
func TestWatchesCountUntilTheyAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 2, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Hangs") != "" {
				hangs(w, r)
				return
			}
			fine(w, r)
		})
		for range 4 {
			b.want(b.ask(t.Context(), "a", watch(), nil), http.StatusOK, "fine")
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		waiting := http.Header{"X-Hangs": {"1"}}
		go b.ask(ctx, "a", nil, waiting.Clone())
		synctest.Wait()
		b.want(b.ask(t.Context(), "a", nil, nil), http.StatusTooManyRequests, "Too many requests, please try again later.\n")
		b.want(b.ask(t.Context(), "b", nil, nil), http.StatusOK, "fine")
		cancel()
		synctest.Wait()
		b.want(b.ask(t.Context(), "a", nil, nil), http.StatusOK, "fine")
	})
}

// TestNoBound: where none is given many wait.
func TestNoBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 0, hangs)
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		for range 50 {
			done.Go(func() {
				if w := b.ask(ctx, "a", nil, nil); w.Code == http.StatusTooManyRequests {
					t.Error(w.Body)
				}
			})
		}
		synctest.Wait()
		if n := b.asked.Load(); n != 50 {
			t.Errorf("%d wait", n)
		}
		cancel()
		done.Wait()
	})
}

// TestPlaces are for requests that upgrade their connections alone, and are given back.
func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 0, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) })
		upgrade := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"odd/1"}}
		b.want(b.ask(t.Context(), "a", nil, upgrade.Clone()), http.StatusForbidden, "no\n")
		taken, left := 0, 0
		b.Place = func(*http.Request) (func(), error) {
			taken++
			return func() { left++ }, nil
		}
		b.want(b.ask(t.Context(), "a", nil, nil), http.StatusForbidden, "no\n")
		if taken != 0 {
			t.Error("a request that upgrades nothing has taken a place")
		}
		b.want(b.ask(t.Context(), "a", nil, upgrade.Clone()), http.StatusForbidden, "no\n")
		if taken != 1 || left != 1 {
			t.Errorf("%d places were taken, %d given back", taken, left)
		}
		b.Place = func(*http.Request) (func(), error) { return nil, errors.New("there is none") }
		asked := b.asked.Load()
		b.want(b.ask(t.Context(), "a", nil, upgrade.Clone()), http.StatusTooManyRequests, "")
		if b.asked.Load() != asked {
			t.Error("it was asked without a place")
		}
	})
}
