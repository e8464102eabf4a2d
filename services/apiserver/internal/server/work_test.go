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

// TestLargeWorkTakesTurns: large bodies, and small patches of large objects, are worked on when
// it is their turn, also after another server was waited for, during which they have none.
func TestLargeWorkTakesTurns(t *testing.T) {
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
				turns := serving.NewLargeRequests(1)
				c := &Config{LargeRequests: turns, Metrics: NewMetrics(prometheus.NewRegistry())}
				var at atomic.Value
				answer := make(chan struct{})
				h := c.receive(c.work(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if !request.Weigh(r.Context(), tc.weigh) {
						t.Error("it is refused")
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
					if !turns.EnterNow() {
						t.Fatal("it has the turn")
					}
				}
				free()
				go func() { // somebody else has it
					time.Sleep(time.Minute)
					turns.Leave()
				}()
				over := make(chan struct{})
				go func() {
					defer close(over)
					op := &requestinfo.Info{Verb: tc.verb, IsResource: true, Target: &apiset.Resource{}}
					h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(tc.body)).WithContext(
						request.WithUser(requestinfo.Carry(ctx, op), somebody("a").User)))
				}()
				is := func(want any) {
					t.Helper()
					synctest.Wait()
					if got := at.Load(); got != want {
						t.Errorf("it is at %v, not %v", got, want)
					}
				}
				is(nil)
				time.Sleep(time.Minute)
				is("work")
				free() // it waits for another server
				answer <- struct{}{}
				is("work")
				turns.Leave()
				is("more work")
				if turns.EnterNow() {
					t.Error("it has no turn for the rest")
				}
				answer <- struct{}{}
				is("answered")
				free()
				turns.Leave()
				close(answer)
				<-over
			})
		})
	}
}

// TestSmallWorkTakesNoTurns, and is not held up by who has them.
func TestSmallWorkTakesNoTurns(t *testing.T) {
	turns := serving.NewLargeRequests(1)
	c := &Config{LargeRequests: turns, Metrics: NewMetrics(prometheus.NewRegistry())}
	turns.EnterNow()
	for verb, body := range map[string]string{"create": strings.Repeat("x", largeBody-1), "patch": "{}", "get": ""} {
		came := false
		h := c.receive(c.work(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			request.OnlyWaits(r.Context())()
			came = request.Weigh(r.Context(), largeBody-1)
		})))
		op := &requestinfo.Info{Verb: verb, IsResource: true, Target: &apiset.Resource{}}
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(body)).WithContext(
			request.WithUser(requestinfo.Carry(t.Context(), op), somebody("a").User)))
		if !came {
			t.Errorf("%s has to wait", verb)
		}
	}
}

// TestOneTurnForARequest: several that are at work for it do not take one each, and what
// comes when it is waited for again, or not needed any more, is given back.
func TestOneTurnForARequest(t *testing.T) {
	for name, end := range map[string]func(w *workedOn, leave func()){
		"both go on": func(_ *workedOn, leave func()) { leave() },
		"one waits again": func(w *workedOn, leave func()) {
			back := w.aside()
			leave()
			synctest.Wait()
			for range 2 {
				if !w.turns.EnterNow() {
					t.Error("it has a turn while it waits for another server")
				}
			}
			w.turns.Leave()
			w.turns.Leave()
			back()
		},
		"it is over": func(w *workedOn, leave func()) { w.leave(); leave() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				turns := serving.NewLargeRequests(2)
				w := &workedOn{ctx: t.Context(), request: httptest.NewRequest("DELETE", "/", nil), turns: turns, beginning: make(chan struct{}, 1)}
				w.has(func() {}, largeBody)
				w.due = true
				first := w.aside()
				for range 2 { // others have them
					turns.EnterNow()
				}
				go first()
				synctest.Wait()
				second := w.aside()
				go second()
				synctest.Wait()
				end(w, func() { turns.Leave(); turns.Leave() })
				synctest.Wait()
				w.leave()
				for range 2 {
					if !turns.EnterNow() {
						t.Error("a turn is lost")
					}
				}
			})
		})
	}
}

// TestWhoIsAskedAboutHasNoTurn: who may say no is asked before a large request has a turn, and has
// it get none.
func TestWhoIsAskedAboutHasNoTurn(t *testing.T) {
	turns := serving.NewLargeRequests(1)
	w := &workedOn{ctx: t.Context(), request: httptest.NewRequest("PUT", "/", nil), turns: turns, beginning: make(chan struct{}, 1)}
	w.has(func() {}, largeBody)
	w.aside()()
	if !turns.EnterNow() {
		t.Fatal("it has a turn before it begins")
	}
	turns.Leave()
	w.begin()
	if w.aside()(); turns.EnterNow() {
		t.Error("it has no turn after it has begun")
	}
	w.leave()
}

// TestWhoWaitsForSeatsHasNoTurn: others have it meanwhile. Then it is waited for with the seats.
func TestWhoWaitsForSeatsHasNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, seats := serving.NewLargeRequests(1), make(chan struct{})
		ctx := requestinfo.Carry(t.Context(), &requestinfo.Info{})
		request.SetRest(ctx, func(bool) (func() error, bool) { return func() error { <-seats; return nil }, true })
		w := &workedOn{ctx: ctx, request: httptest.NewRequest("PUT", "/", nil), turns: turns, beginning: make(chan struct{}, 1)}
		w.has(func() {}, largeBody)
		turns.EnterNow()
		began := make(chan bool, 1)
		go func() { began <- w.begin() }()
		synctest.Wait()
		turns.Leave() // it is the request's
		time.Sleep(2 * seatsWait)
		synctest.Wait()
		if !turns.EnterNow() {
			t.Fatal("it has the turn while it waits for its seats")
		}
		close(seats)
		synctest.Wait()
		if len(began) > 0 {
			t.Fatal("it goes on without the turn")
		}
		turns.Leave()
		synctest.Wait()
		if len(began) == 0 || !<-began {
			t.Fatal("it does not go on")
		}
		if turns.EnterNow() {
			t.Fatal("it has no turn")
		}
		time.Sleep(2 * seatsWait)
		if turns.EnterNow() {
			t.Error("it has lost its turn, although it has its seats")
		}
		w.leave()
		if !turns.EnterNow() {
			t.Error("a turn is lost")
		}
	})
}

// TestWhoGetsNoTurnIsRefused in time, and so are long addresses, which are not read.
func TestWhoGetsNoTurnIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := serving.NewLargeRequests(1)
		counts := prometheus.NewRegistry()
		c := &Config{LargeRequests: turns, Metrics: NewMetrics(counts), Kinds: apiset.NewLive(&apiset.Set{}), Logger: slog.New(slog.DiscardHandler)}
		turns.EnterNow()
		never := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it is worked on") })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		op := &requestinfo.Info{Verb: "create", IsResource: true, Target: &apiset.Resource{}}
		body := httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", largeBody))).WithContext(
			request.WithUser(requestinfo.Carry(ctx, op), somebody("a").User))
		for name, tc := range map[string]struct {
			h    http.Handler
			r    *http.Request
			wait time.Duration
		}{
			"a large body":   {c.receive(c.work(never)), body, time.Minute / bodyWaitShare},
			"a long address": {c.resolve(never), httptest.NewRequest("GET", "/api/v1/pods?labelSelector="+strings.Repeat("a", largeTarget), nil), bodyWaitEndless},
		} {
			begin, w := time.Now(), httptest.NewRecorder()
			tc.h.ServeHTTP(w, tc.r)
			if d := time.Since(begin); w.Code != http.StatusTooManyRequests || d > tc.wait {
				t.Errorf("%s is answered with %d after %v", name, w.Code, d)
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
			t.Error("who is refused for a long address is not counted")
		}
		turns.Leave()
		long := httptest.NewRequest("GET", "/api/v1/pods?labelSelector="+strings.Repeat("a", largeTarget), nil)
		c.resolve(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			if !turns.EnterNow() {
				t.Error("what has been read keeps its turn")
			}
		})).ServeHTTP(httptest.NewRecorder(), long)
		came := false
		short := httptest.NewRequest("GET", "/api/v1/pods?labelSelector="+strings.Repeat("a", 100), nil)
		c.resolve(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { came = true })).ServeHTTP(httptest.NewRecorder(), short)
		if !came {
			t.Error("a short address waits, too")
		}
	})
}

// TestWhoOutlastsTheAnswerKeepsNoRoom: what goes on after a request has neither its room nor its turn for ever.
func TestWhoOutlastsTheAnswerKeepsNoRoom(t *testing.T) {
	turns := serving.NewLargeRequests(1)
	among := newBodies(8 * largeBody)
	var late context.Context
	h := receiving(newLevelBodies(largeBody), among, turns, &bodySizes{}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		late = r.Context()
	}))
	op := &requestinfo.Info{Verb: "delete", IsResource: true, Target: &apiset.Resource{}}
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodDelete, "/", nil).WithContext(
		request.WithUser(requestinfo.Carry(t.Context(), op), somebody("a").User)))
	request.Weigh(late, largeBody)
	if !turns.EnterNow() {
		t.Error("the turn is kept")
	}
	among.room.mu.Lock()
	defer among.room.mu.Unlock()
	if among.room.used != 0 {
		t.Errorf("%d of the room are kept", among.room.used)
	}
}

// TestRequestTakesRoomAgainAfterItsLastWait: a request that waits for two things side by side
// leaves its room to others until both have come.
func TestRequestTakesRoomAgainAfterItsLastWait(t *testing.T) {
	among := newBodies(4 * largeBody)
	w := &workedOn{
		ctx: t.Context(), user: somebody("a"), request: httptest.NewRequest("POST", "/", nil),
		among: among, turns: serving.NewLargeRequests(1), beginning: make(chan struct{}, 1),
	}
	if !w.enter(largeBody) {
		t.Fatal("there is no room")
	}
	first, second := w.idle(), w.idle()
	first()
	if w.large() || among.room.used != 0 {
		t.Errorf("%d bytes of room are taken during the second wait", among.room.used)
	}
	second()
	if !w.large() || among.room.used != largeBody {
		t.Errorf("%d bytes of room are taken after both waits", among.room.used)
	}
	w.finish()
	if among.room.used != 0 {
		t.Errorf("%d bytes of room are taken after the end", among.room.used)
	}
}
