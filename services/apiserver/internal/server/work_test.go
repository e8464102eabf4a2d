package server

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"binnacle/libs/serving"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

// Large bodies and small patches of large objects are processed with a permit. They release it while they
// wait for another server and acquire it again afterwards.
func TestLargeWorkAcquiresPermit(t *testing.T) {
	for name, tc := range map[string]struct {
		verb, body string
		weigh      int
	}{
		"a large body":              {"create", strings.Repeat("x", largeBody), 0},
		"a patch of a large object": {"patch", "{}", largeBody},
		"a small new version of it": {"update", "{}", largeBody},
		"a patch that is large too": {"patch", strings.Repeat("x", largeBody), largeBody},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := serving.NewLargeRequests(1)
				c := &Config{LargeRequests: limiter, Metrics: NewMetrics(prometheus.NewRegistry())}
				var at atomic.Value
				answer := make(chan struct{})
				h := c.withBody(c.withWorkLimit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if !request.Weigh(r.Context(), tc.weigh) {
						t.Error("the work was not admitted")
					}
					at.Store("work")
					back := request.OnlyWaits(r.Context())
					<-answer
					back()
					at.Store("more work")
					<-answer
					w.WriteHeader(http.StatusOK)
					at.Store("answered")
					<-answer
				})))
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				free := func() {
					t.Helper()
					if !limiter.EnterNow() {
						t.Fatal("the permit is taken")
					}
				}
				free()
				go func() { // another request holds the permit
					time.Sleep(time.Minute)
					limiter.Leave()
				}()
				over := make(chan struct{})
				go func() {
					defer close(over)
					op := &requestinfo.Info{Verb: tc.verb, IsResource: true, Target: &apiset.Resource{}}
					h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(tc.body)).WithContext(
						request.WithUser(requestinfo.Carry(ctx, op), newClient("a").User)))
				}()
				is := func(want any) {
					t.Helper()
					synctest.Wait()
					if got := at.Load(); got != want {
						t.Errorf("request is at %v, want %v", got, want)
					}
				}
				is(nil)
				time.Sleep(time.Minute)
				is("work")
				free() // the request waits for another server
				answer <- struct{}{}
				is("work")
				limiter.Leave()
				is("more work")
				if limiter.EnterNow() {
					t.Error("the request continued without a permit")
				}
				answer <- struct{}{}
				is("answered")
				free()
				limiter.Leave()
				close(answer)
				<-over
			})
		})
	}
}

func TestSmallWorkNeedsNoPermit(t *testing.T) {
	limiter := serving.NewLargeRequests(1)
	c := &Config{LargeRequests: limiter, Metrics: NewMetrics(prometheus.NewRegistry())}
	limiter.EnterNow()
	for verb, body := range map[string]string{"create": strings.Repeat("x", largeBody-1), "patch": "{}", "get": ""} {
		came := false
		h := c.withBody(c.withWorkLimit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			request.OnlyWaits(r.Context())()
			came = request.Weigh(r.Context(), largeBody-1)
		})))
		op := &requestinfo.Info{Verb: verb, IsResource: true, Target: &apiset.Resource{}}
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(body)).WithContext(
			request.WithUser(requestinfo.Carry(t.Context(), op), newClient("a").User)))
		if !came {
			t.Errorf("%s: small work was not admitted", verb)
		}
	}
}

// Goroutines of one request share one permit. A permit that arrives when the request waits again or has
// ended is released.
func TestRequestHoldsOnePermit(t *testing.T) {
	for name, end := range map[string]func(w *largeWork, leave func()){
		"both continue": func(_ *largeWork, leave func()) { leave() },
		"one waits again": func(w *largeWork, leave func()) {
			back := w.suspendPermit()
			leave()
			synctest.Wait()
			for range 2 {
				if !w.limiter.EnterNow() {
					t.Error("the request holds a permit while it waits for another server")
				}
			}
			w.limiter.Leave()
			w.limiter.Leave()
			back()
		},
		"the request ends": func(w *largeWork, leave func()) { w.release(); leave() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := serving.NewLargeRequests(2)
				w := &largeWork{ctx: t.Context(), request: httptest.NewRequest("DELETE", "/", nil), limiter: limiter, acquiring: make(chan struct{}, 1)}
				w.setBytes(func() {}, largeBody)
				w.wantsPermit = true
				first := w.suspendPermit()
				for range 2 { // other requests hold them
					limiter.EnterNow()
				}
				go first()
				synctest.Wait()
				second := w.suspendPermit()
				go second()
				synctest.Wait()
				end(w, func() { limiter.Leave(); limiter.Leave() })
				synctest.Wait()
				w.release()
				for range 2 {
					if !limiter.EnterNow() {
						t.Error("a permit is lost")
					}
				}
			})
		})
	}
}

// A wait before the first acquisition does not acquire a permit afterwards. A wait after it does.
func TestSuspendBeforeAcquireTakesNoPermit(t *testing.T) {
	limiter := serving.NewLargeRequests(1)
	w := &largeWork{ctx: t.Context(), request: httptest.NewRequest("PUT", "/", nil), limiter: limiter, acquiring: make(chan struct{}, 1)}
	w.setBytes(func() {}, largeBody)
	w.suspendPermit()()
	if !limiter.EnterNow() {
		t.Fatal("the request holds a permit before it acquired one")
	}
	limiter.Leave()
	w.acquirePermit()
	if w.suspendPermit()(); limiter.EnterNow() {
		t.Error("the request has no permit after the wait")
	}
	w.release()
}

// A request whose seats are late releases its permit, and acquires it again when it has the seats.
func TestPermitIsReleasedWhileSeatsAreLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, seats := serving.NewLargeRequests(1), make(chan struct{})
		ctx := requestinfo.Carry(t.Context(), &requestinfo.Info{})
		request.SetReleaseSeats(ctx, func(bool) (func() error, bool) { return func() error { <-seats; return nil }, true })
		w := &largeWork{ctx: ctx, request: httptest.NewRequest("PUT", "/", nil), limiter: limiter, acquiring: make(chan struct{}, 1)}
		w.setBytes(func() {}, largeBody)
		limiter.EnterNow()
		began := make(chan bool, 1)
		go func() { began <- w.acquirePermit() }()
		synctest.Wait()
		limiter.Leave() // the request gets the permit
		time.Sleep(2 * maxSeatWait)
		synctest.Wait()
		if !limiter.EnterNow() {
			t.Fatal("the request holds the permit while it waits for its seats")
		}
		close(seats)
		synctest.Wait()
		if len(began) > 0 {
			t.Fatal("the request continued without the permit")
		}
		limiter.Leave()
		synctest.Wait()
		if len(began) == 0 || !<-began {
			t.Fatal("the request did not continue")
		}
		if limiter.EnterNow() {
			t.Fatal("the request has no permit")
		}
		time.Sleep(2 * maxSeatWait)
		if limiter.EnterNow() {
			t.Error("the request lost its permit although it has its seats")
		}
		w.release()
		if !limiter.EnterNow() {
			t.Error("a permit is lost")
		}
	})
}

// A large body and a long URL are rejected if no permit becomes free in time. The URL is not parsed then.
func TestRequestWithoutPermitIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := serving.NewLargeRequests(1)
		counts := prometheus.NewRegistry()
		c := &Config{LargeRequests: limiter, Metrics: NewMetrics(counts), Kinds: apiset.NewLive(&apiset.Set{}), Logger: slog.New(slog.DiscardHandler)}
		limiter.EnterNow()
		never := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler was called") })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		op := &requestinfo.Info{Verb: "create", IsResource: true, Target: &apiset.Resource{}}
		body := httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", largeBody))).WithContext(
			request.WithUser(requestinfo.Carry(ctx, op), newClient("a").User))
		for name, tc := range map[string]struct {
			h    http.Handler
			r    *http.Request
			wait time.Duration
		}{
			"a large body": {c.withBody(c.withWorkLimit(never)), body, time.Minute / bodyWaitShare},
			"a long URL":   {c.withRequestInfo(never), httptest.NewRequest("GET", "/api/v1/pods?labelSelector="+strings.Repeat("a", largeURL), nil), bodyWaitWithoutDeadline},
		} {
			begin, w := time.Now(), httptest.NewRecorder()
			tc.h.ServeHTTP(w, tc.r)
			if d := time.Since(begin); w.Code != http.StatusTooManyRequests || d > tc.wait {
				t.Errorf("%s: got %d after %v, want 429 within %v", name, w.Code, d, tc.wait)
			}
		}
		families, err := counts.Gather()
		if err != nil {
			t.Fatal(err)
		}
		refused := slices.ContainsFunc(families, func(f *dto.MetricFamily) bool {
			return f.GetName() == "apiserver_request_total" && strings.Contains(f.String(), `"429"`)
		})
		if !refused {
			t.Error("a request rejected for a long URL is not counted")
		}
		limiter.Leave()
		long := httptest.NewRequest("GET", "/api/v1/pods?labelSelector="+strings.Repeat("a", largeURL), nil)
		c.withRequestInfo(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			if !limiter.EnterNow() {
				t.Error("the permit is still held after the URL was parsed")
			}
		})).ServeHTTP(httptest.NewRecorder(), long)
		came := false
		short := httptest.NewRequest("GET", "/api/v1/pods?labelSelector="+strings.Repeat("a", 100), nil)
		c.withRequestInfo(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { came = true })).ServeHTTP(httptest.NewRecorder(), short)
		if !came {
			t.Error("a short URL did not reach the handler")
		}
	})
}

// Work that continues after its request holds neither bytes nor a permit.
func TestWorkAfterResponseHoldsNothing(t *testing.T) {
	limiter := serving.NewLargeRequests(1)
	budget := newByteBudget(8 * largeBody)
	var late context.Context
	h := limitBodies(newLevelBudgets(largeBody), budget, limiter, &bodySizes{}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		late = r.Context()
	}))
	op := &requestinfo.Info{Verb: "delete", IsResource: true, Target: &apiset.Resource{}}
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodDelete, "/", nil).WithContext(
		request.WithUser(requestinfo.Carry(t.Context(), op), newClient("a").User)))
	request.Weigh(late, largeBody)
	if !limiter.EnterNow() {
		t.Error("the permit is still held")
	}
	budget.fair.mu.Lock()
	defer budget.fair.mu.Unlock()
	if budget.fair.used != 0 {
		t.Errorf("%d bytes are still held, want 0", budget.fair.used)
	}
}

// A request with two parallel waits holds no bytes until both have ended.
func TestBytesAreReacquiredAfterLastWait(t *testing.T) {
	budget := newByteBudget(4 * largeBody)
	w := &largeWork{
		ctx: t.Context(), user: newClient("a"), request: httptest.NewRequest("POST", "/", nil),
		budget: budget, limiter: serving.NewLargeRequests(1), acquiring: make(chan struct{}, 1),
	}
	if !w.waitForBytes(largeBody) {
		t.Fatal("no bytes in an empty budget")
	}
	first, second := w.suspend(), w.suspend()
	first()
	if w.hasBytes() || budget.fair.used != 0 {
		t.Errorf("got %d bytes used during the second wait, want 0", budget.fair.used)
	}
	second()
	if !w.hasBytes() || budget.fair.used != largeBody {
		t.Errorf("got %d bytes used after both waits, want %d", budget.fair.used, largeBody)
	}
	w.end()
	if budget.fair.used != 0 {
		t.Errorf("got %d bytes used after the end, want 0", budget.fair.used)
	}
}
