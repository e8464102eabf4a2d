package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/serving"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/security/authz"
)

// judge decides what may be impersonated.
type judge struct {
	decide func(context.Context, *authz.Attributes) authz.Decision
}

func (j judge) Authorize(ctx context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	return j.decide(ctx, a), "", nil
}

// impersonation asks to be somebody, where one large request is worked on at a time.
type impersonation struct {
	turns  serving.LargeRequests
	c      *Config
	h      http.Handler
	passed atomic.Bool

	mu    sync.Mutex
	asked []bool // whether there was a turn, for each question
}

func newImpersonation(t *testing.T, decide func(*impersonation, context.Context, *authz.Attributes) authz.Decision) *impersonation {
	t.Helper()
	catalog, err := builtin.Catalog()
	if err != nil {
		t.Fatal(err)
	}
	c, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	i := &impersonation{turns: serving.NewLargeRequests(1)}
	i.c = &Config{Responder: responsewriters.Responder{Codec: c}, LargeRequests: i.turns, Metrics: NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler)}
	i.c.Authorizer = judge{func(ctx context.Context, a *authz.Attributes) authz.Decision {
		i.mu.Lock()
		i.asked = append(i.asked, !i.free())
		i.mu.Unlock()
		return decide(i, ctx, a)
	}}
	i.h = i.c.impersonate(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { i.passed.Store(true) }))
	return i
}

func (i *impersonation) free() bool {
	if !i.turns.EnterNow() {
		return false
	}
	i.turns.Leave()
	return true
}

func (i *impersonation) ask(ctx context.Context, groups ...string) int {
	return i.askAs(ctx, http.Header{"Impersonate-Group": groups})
}

func (i *impersonation) askAs(ctx context.Context, parts http.Header) int {
	r := httptest.NewRequest("GET", "/api/v1/pods", nil)
	r.Header = parts.Clone()
	r.Header.Set("Impersonate-User", "alice")
	r = r.WithContext(request.WithUser(requestinfo.Carry(ctx, &requestinfo.Info{}), somebody("boss").User))
	w := httptest.NewRecorder()
	i.h.ServeHTTP(w, r)
	return w.Code
}

// TestLargeUsersTakeTurns: who wants to be somebody of many groups has a turn while each is asked
// about, but not while another server is, and none afterwards; without one he is refused. Whether
// there may be such a user at all is asked without.
func TestLargeUsersTakeTurns(t *testing.T) {
	large := strings.Repeat("a", largeTarget)
	allow := func(*impersonation, context.Context, *authz.Attributes) authz.Decision { return authz.Allow }
	for name, tc := range map[string]struct {
		decide func(*impersonation, context.Context, *authz.Attributes) authz.Decision
		taken  bool // by another
		groups []string
		code   int
		asked  []bool
		within time.Duration
	}{
		"few groups":     {decide: allow, taken: true, groups: []string{"a"}, code: 200, asked: []bool{true, true}},
		"a large one":    {decide: allow, groups: []string{large, "b"}, code: 200, asked: []bool{false, true, true}},
		"many empty":     {decide: allow, groups: make([]string, largeTarget/perField), code: 200, asked: append([]bool{false}, slices.Repeat([]bool{true}, largeTarget/perField)...)},
		"others at work": {decide: allow, taken: true, groups: []string{large}, code: 429, asked: []bool{true}, within: bodyWaitEndless},
		"another server answers": {
			decide: func(i *impersonation, ctx context.Context, _ *authz.Attributes) authz.Decision {
				back := request.Aside(ctx)
				if !i.free() {
					t.Error("another server is waited for with a turn")
				}
				back()
				return authz.Allow
			}, groups: []string{large, "b"}, code: 200, asked: []bool{false, true, true},
		},
		"a stranger": {
			decide: func(*impersonation, context.Context, *authz.Attributes) authz.Decision { return authz.NoOpinion },
			taken:  true, groups: []string{large}, code: 403, asked: []bool{true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i := newImpersonation(t, tc.decide)
				if tc.taken {
					i.turns.EnterNow()
				}
				begin := time.Now()
				code := i.ask(t.Context(), tc.groups...)
				if code != tc.code || i.passed.Load() != (tc.code == 200) || time.Since(begin) > tc.within {
					t.Errorf("answered with %d after %v, passed %t", code, time.Since(begin), i.passed.Load())
				}
				if !slices.Equal(i.asked, tc.asked) {
					t.Errorf("asked with turns %v, not %v", i.asked, tc.asked)
				}
				if i.free() == tc.taken {
					t.Errorf("the turn is free afterwards: %t", !tc.taken)
				}
			})
		})
	}
}

// TestLargeUsersOfOtherServers: who lost his turn while another server answered waits for it again
// only now and then.
func TestLargeUsersOfOtherServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const others = 300 * time.Millisecond
		i := newImpersonation(t, func(i *impersonation, ctx context.Context, _ *authz.Attributes) authz.Decision {
			back := request.Aside(ctx)
			if i.turns.EnterNow() { // somebody else begins meanwhile
				time.AfterFunc(others, i.turns.Leave)
			}
			back()
			return authz.Allow
		})
		groups := make([]string, 4*askedWithout)
		groups[0] = strings.Repeat("a", largeTarget)
		begin := time.Now()
		if code := i.ask(t.Context(), groups...); code != 200 || time.Since(begin) < 2*others || time.Since(begin) > 5*others {
			t.Errorf("answered with %d after %v", code, time.Since(begin))
		}
	})
}

// TestLargeUsersGiveTurnsBack: whatever becomes of them.
func TestLargeUsersGiveTurnsBack(t *testing.T) {
	large := strings.Repeat("a", largeTarget)
	i := newImpersonation(t, func(_ *impersonation, _ context.Context, a *authz.Attributes) authz.Decision {
		if a.Name == large {
			panic("odd")
		}
		return authz.Allow
	})
	func() {
		defer func() { _ = recover() }()
		i.ask(t.Context(), large)
	}()
	if len(i.asked) != 2 || !i.free() {
		t.Errorf("asked %d times, and the turn is free: %t", len(i.asked), i.free())
	}

	ctx, leave := context.WithCancel(t.Context())
	i = newImpersonation(t, func(*impersonation, context.Context, *authz.Attributes) authz.Decision {
		leave()
		return authz.Allow
	})
	if i.ask(ctx, large, "b"); i.passed.Load() || len(i.asked) != 1 || !i.free() {
		t.Errorf("who has left is asked about %d times, passed %t, and the turn is free: %t", len(i.asked), i.passed.Load(), i.free())
	}
}

// TestLargeUsersThatWait: of one client no more than half of those that may.
func TestLargeUsersThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newImpersonation(t, func(*impersonation, context.Context, *authz.Attributes) authz.Decision { return authz.Allow })
		i.turns.EnterNow()
		codes := make(chan int, maxImpersonating)
		begin := time.Now()
		for range maxImpersonating {
			go func() { codes <- i.ask(t.Context(), strings.Repeat("a", largeTarget)) }()
			synctest.Wait()
		}
		if n := len(codes); n < maxImpersonating/2 || time.Since(begin) > 0 {
			t.Errorf("%d are refused at once, after %v", n, time.Since(begin))
		}
		i.turns.Leave()
		for range maxImpersonating {
			<-codes
		}
	})
}

// TestExtraIsReadOnceItMatters: by who may be somebody of that name, and has a turn.
func TestExtraIsReadOnceItMatters(t *testing.T) {
	const fields = 5000
	parts := http.Header{}
	for n := range fields {
		parts[fmt.Sprint("Impersonate-Extra-", n)] = []string{"a"}
	}
	i := newImpersonation(t, func(*impersonation, context.Context, *authz.Attributes) authz.Decision { return authz.Allow })
	if code := i.askAs(t.Context(), parts); code != 200 || !slices.Equal(i.asked, append([]bool{false}, slices.Repeat([]bool{true}, fields)...)) {
		t.Errorf("answered with %d, asked %d times", code, len(i.asked))
	}
	i = newImpersonation(t, func(*impersonation, context.Context, *authz.Attributes) authz.Decision { return authz.NoOpinion })
	stranger := func(parts http.Header) float64 {
		r := httptest.NewRequest("GET", "/api/v1/pods", nil)
		parts.Set("Impersonate-User", "alice")
		r.Header = parts
		r = r.WithContext(request.WithUser(requestinfo.Carry(t.Context(), &requestinfo.Info{}), somebody("stranger").User))
		return testing.AllocsPerRun(1, func() { i.h.ServeHTTP(httptest.NewRecorder(), r) })
	}
	if few, many := stranger(http.Header{}), stranger(parts); many > few+fields/10 {
		t.Errorf("a stranger's extra takes %v allocations, %v without", many, few)
	}
}
