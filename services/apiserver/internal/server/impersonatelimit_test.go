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

	"binnacle/libs/limit"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/security/authz"
	"binnacle/services/apiserver/internal/server/overload"
	"binnacle/services/apiserver/internal/server/telemetry"
)

// testBounds are the bounds of large requests in tests.
var testBounds = overload.Bounds{LargeBytesPerCPU: 3 << 20, WaitingBodies: 1000, NegotiationFields: 8 << 10}

// authorizerFunc is an authorizer that calls decide.
type authorizerFunc struct {
	decide func(context.Context, *authz.Attributes) authz.Decision
}

func (f authorizerFunc) Authorize(ctx context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	return f.decide(ctx, a), "", nil
}

// impersonationFixture sends impersonated requests through a server with one permit for large
// requests.
type impersonationFixture struct {
	permits *limit.Queue[string]
	config  *Config
	handler http.Handler
	passed  atomic.Bool

	mu                sync.Mutex
	checkedWithPermit []bool // for each check, whether the request held the permit
}

// decisionFunc decides on a permission check of the fixture.
type decisionFunc func(*impersonationFixture, context.Context, *authz.Attributes) authz.Decision

// allowAll is a decisionFunc that allows every impersonation.
func allowAll(*impersonationFixture, context.Context, *authz.Attributes) authz.Decision {
	return authz.Allow
}

// newImpersonationFixture returns a server whose authorizer calls decide for each permission.
func newImpersonationFixture(
	t *testing.T,
	decide decisionFunc,
) *impersonationFixture {
	t.Helper()
	catalog, err := builtin.DefaultCatalog()
	if err != nil {
		t.Fatal(err)
	}
	apiCodec, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	fixture := &impersonationFixture{permits: limit.New[string](limit.Options{Size: 1})}
	fixture.config = &Config{
		Overload:  overload.Options{Bounds: testBounds, LargeRequests: fixture.permits},
		Responder: responsewriters.Responder{Codec: apiCodec},
		Metrics:   telemetry.NewMetrics(prometheus.NewRegistry()),
		Logger:    slog.New(slog.DiscardHandler),
	}
	fixture.config.Authorizer = authorizerFunc{func(ctx context.Context, a *authz.Attributes) authz.Decision {
		fixture.mu.Lock()
		fixture.checkedWithPermit = append(fixture.checkedWithPermit, !fixture.permitIsFree())
		fixture.mu.Unlock()
		return decide(fixture, ctx, a)
	}}
	fixture.handler = overload.New(fixture.config.Overload, fixture.config.telemetryFilters()).WithWork(fixture.config.withImpersonation(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { fixture.passed.Store(true) })))
	return fixture
}

func (fixture *impersonationFixture) permitIsFree() bool { return fixture.permits.InUse() == 0 }

// send sends a request that impersonates a user with groups, and returns the status code.
func (fixture *impersonationFixture) send(ctx context.Context, groups ...string) int {
	return fixture.sendAs(ctx, http.Header{"Impersonate-Group": groups})
}

// sendAs sends a request with impersonation headers, and returns the status code.
func (fixture *impersonationFixture) sendAs(ctx context.Context, parts http.Header) int {
	r := httptest.NewRequest("GET", "/api/v1/pods", nil)
	r.Header = parts.Clone()
	r.Header.Set("Impersonate-User", "alice")
	r = r.WithContext(requesttest.WithUser(requesttest.WithInfo(ctx, &requestinfo.Info{}), &request.User{Name: "boss"}))
	response := httptest.NewRecorder()
	fixture.handler.ServeHTTP(response, r)
	return response.Code
}

// TestLargeImpersonationNeedsPermit checks that a request that impersonates many groups holds a
// permit during the checks, except the first check of the name and while a webhook answers. Without
// a permit it is rejected.
func TestLargeImpersonationNeedsPermit(t *testing.T) {
	largeName := strings.Repeat("a", overload.LargeURL)
	for name, tc := range map[string]struct {
		decide   decisionFunc
		taken    bool // another request holds the permit
		groups   []string
		wantCode int
		wantHeld []bool        // for each check, whether the permit is taken
		maxWait  time.Duration // for the permit
	}{
		"few groups":  {decide: allowAll, taken: true, groups: []string{"a"}, wantCode: 200, wantHeld: []bool{true, true}},
		"large group": {decide: allowAll, groups: []string{largeName, "b"}, wantCode: 200, wantHeld: []bool{false, true, true}},
		"many empty groups": {
			decide:   allowAll,
			groups:   make([]string, overload.LargeURL/headerFieldOverhead),
			wantCode: 200,
			wantHeld: append([]bool{false}, slices.Repeat([]bool{true}, overload.LargeURL/headerFieldOverhead)...),
		},
		"other requests hold all permits": {
			decide:   allowAll,
			taken:    true,
			groups:   []string{largeName},
			wantCode: 429,
			wantHeld: []bool{true},
			maxWait:  15 * time.Second,
		},
		"authorizer waits for a webhook": {
			decide: func(fixture *impersonationFixture, ctx context.Context, _ *authz.Attributes) authz.Decision {
				resume := request.Suspend(ctx)
				if !fixture.permitIsFree() {
					t.Error("the request holds the permit while it waits for the webhook")
				}
				resume()
				return authz.Allow
			},
			groups:   []string{largeName, "b"},
			wantCode: 200,
			wantHeld: []bool{false, true, true},
		},
		"client without permission": {
			decide:   func(*impersonationFixture, context.Context, *authz.Attributes) authz.Decision { return authz.NoOpinion },
			taken:    true,
			groups:   []string{largeName},
			wantCode: 403,
			wantHeld: []bool{true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fixture := newImpersonationFixture(t, tc.decide)
				if tc.taken {
					fixture.permits.TryAcquire(limit.Claim[string]{})
				}
				start := time.Now()
				code := fixture.send(t.Context(), tc.groups...)
				if code != tc.wantCode || fixture.passed.Load() != (tc.wantCode == 200) || time.Since(start) > tc.maxWait {
					t.Errorf("got %d after %v, passed = %t, want %d within %v", code, time.Since(start),
						fixture.passed.Load(), tc.wantCode, tc.maxWait)
				}
				if !slices.Equal(fixture.checkedWithPermit, tc.wantHeld) {
					t.Errorf("checks with permit: got %v, want %v", fixture.checkedWithPermit, tc.wantHeld)
				}
				if fixture.permitIsFree() == tc.taken {
					t.Errorf("permit free afterwards = %t, want %t", !tc.taken, tc.taken)
				}
			})
		})
	}
}

// TestImpersonationReleasesPermit checks that the permit is released after a panic and after a
// cancellation.
func TestImpersonationReleasesPermit(t *testing.T) {
	large := strings.Repeat("a", overload.LargeURL)
	fixture := newImpersonationFixture(t, func(_ *impersonationFixture, _ context.Context, a *authz.Attributes) authz.Decision {
		if a.Name == large {
			panic("odd")
		}
		return authz.Allow
	})
	func() {
		defer func() { _ = recover() }()
		fixture.send(t.Context(), large)
	}()
	if len(fixture.checkedWithPermit) != 2 || !fixture.permitIsFree() {
		t.Errorf("after a panic: got %d checks, permit free = %t, want 2 and true", len(fixture.checkedWithPermit), fixture.permitIsFree())
	}

	ctx, cancel := context.WithCancel(t.Context())
	fixture = newImpersonationFixture(t, func(*impersonationFixture, context.Context, *authz.Attributes) authz.Decision {
		cancel()
		return authz.Allow
	})
	fixture.send(ctx, large, "b")
	if fixture.passed.Load() || len(fixture.checkedWithPermit) != 1 || !fixture.permitIsFree() {
		t.Errorf("after a cancellation: got %d checks, passed = %t, permit free = %t, want 1, false and true",
			len(fixture.checkedWithPermit), fixture.passed.Load(), fixture.permitIsFree())
	}
}

// TestExtraIsParsedAfterNameIsAuthorized checks that extra headers are parsed after the name is
// authorized and the request has a permit.
func TestExtraIsParsedAfterNameIsAuthorized(t *testing.T) {
	const fields = 5000
	manyExtras := http.Header{}
	for index := range fields {
		manyExtras[fmt.Sprint("Impersonate-Extra-", index)] = []string{"a"}
	}
	i := newImpersonationFixture(t, allowAll)
	if code := i.sendAs(t.Context(), manyExtras); code != 200 ||
		!slices.Equal(i.checkedWithPermit, append([]bool{false}, slices.Repeat([]bool{true}, fields)...)) {
		t.Errorf("got %d after %d checks, want 200 after %d", code, len(i.checkedWithPermit), fields+1)
	}
	i = newImpersonationFixture(t, func(*impersonationFixture, context.Context, *authz.Attributes) authz.Decision {
		return authz.NoOpinion
	})
	unauthorizedAllocs := func(manyExtras http.Header) float64 {
		r := httptest.NewRequest("GET", "/api/v1/pods", nil)
		manyExtras.Set("Impersonate-User", "alice")
		r.Header = manyExtras
		r = r.WithContext(requesttest.WithUser(
			requesttest.WithInfo(t.Context(), &requestinfo.Info{}),
			&request.User{Name: "unauthorized"},
		))
		return testing.AllocsPerRun(1, func() { i.handler.ServeHTTP(httptest.NewRecorder(), r) })
	}
	if few, many := unauthorizedAllocs(http.Header{}), unauthorizedAllocs(manyExtras); many > few+fields/10 {
		t.Errorf("%d extra fields of an unauthorized client: got %v allocations, want about %v, as for a request without extra",
			fields, many, few)
	}
}
