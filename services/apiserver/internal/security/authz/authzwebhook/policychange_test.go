package authzwebhook_test

import (
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"binnacle/libs/rbac"
)

// positionAt returns the position with all kinds at one revision.
func positionAt(n int64) rbac.Position { return rbac.Position{n, n, n, n} }

// TestPolicyChangeInvalidatesTheCache checks that a decision is cached only as long as it includes
// the last change of the policy.
func TestPolicyChangeInvalidatesTheCache(t *testing.T) {
	fixture := newFixture(t, nil)
	header := ""
	fixture.service.respond = func(w http.ResponseWriter, _ map[string]any, s *status) bool {
		if header != "" {
			w.Header().Set(rbac.PositionHeader, header)
		}
		s.Allowed = true
		return false
	}
	expectCalls := func(want int64, step string) {
		t.Helper()
		fixture.authorize(t, attributesFor("x"))
		if got := fixture.service.calls.Swap(0); got != want {
			t.Errorf("%s: got %d calls, want %d", step, got, want)
		}
	}
	header = "5"
	expectCalls(1, "first")
	expectCalls(0, "kept")
	fixture.PolicyChanged(rbac.Change{Position: positionAt(5), All: true})
	expectCalls(1, "after a change")
	expectCalls(0, "kept again, as it was decided at the change")
	fixture.PolicyChanged(rbac.Change{Position: positionAt(5)})
	expectCalls(0, "a change that affects no decision")
	header = "7"
	fixture.PolicyChanged(rbac.Change{Position: positionAt(6), All: true})
	expectCalls(1, "after another change")
	expectCalls(0, "kept, as it was decided after the change")
	sent := fixture.service.respond
	fixture.service.respond = func(w http.ResponseWriter, spec map[string]any, s *status) bool {
		fixture.PolicyChanged(rbac.Change{Position: positionAt(7), All: true})
		return sent(w, spec, s)
	}
	fixture.PolicyChanged(rbac.Change{Position: rbac.Position{7, 6, 6, 6}, All: true})
	expectCalls(1, "a change during a call")
	expectCalls(0, "kept, as it was decided after that change")
	fixture.service.respond = sent
	header = "nonsense"
	fixture.PolicyChanged(rbac.Change{Position: positionAt(8), All: true})
	expectCalls(1, "malformed header")
	expectCalls(1, "response with malformed header is not cached")
	header = ""
	expectCalls(1, "without a header")
	expectCalls(0, "kept, as nothing changed since it was asked")
}

// TestNothingIsCachedAfterRestore checks that earlier positions do not count, and for a while nothing is cached,
// because services that have not noticed the restore report positions that seem newer.
func TestNothingIsCachedAfterRestore(t *testing.T) {
	fixture := newFixture(t, nil)
	fixture.service.respond = func(w http.ResponseWriter, _ map[string]any, s *status) bool {
		w.Header().Set(rbac.PositionHeader, positionAt(50).String())
		s.Allowed = true
		return false
	}
	expectCalls := func(want int64, step string) {
		t.Helper()
		fixture.authorize(t, attributesFor("x"))
		if got := fixture.service.calls.Swap(0); got != want {
			t.Errorf("%s: got %d calls, want %d", step, got, want)
		}
	}
	fixture.PolicyChanged(rbac.Change{Position: positionAt(40), All: true})
	expectCalls(1, "first")
	expectCalls(0, "kept")
	fixture.PolicyChanged(rbac.Change{Position: positionAt(10), All: true})
	expectCalls(1, "after the restore")
	expectCalls(1, "not kept")
	fixture.clock.advance(time.Minute)
	expectCalls(1, "after all services have noticed")
	expectCalls(0, "kept again")
}

// TestOutdatedDecisionsAreNeverCached races requests with policy changes. A cached decision is at
// least as new as the newest policy that was seen before the request.
func TestOutdatedDecisionsAreNeverCached(t *testing.T) {
	for _, tells := range []bool{true, false} {
		fixture := newFixture(t, nil)
		var policy, seen atomic.Int64 // at the webhook, at the API server
		fixture.service.respond = func(w http.ResponseWriter, _ map[string]any, s *status) bool {
			at := policy.Load()
			if tells {
				w.Header().Set(rbac.PositionHeader, positionAt(at).String())
			}
			s.Allowed, s.Reason = true, fmt.Sprint(at)
			return false
		}
		stop := make(chan struct{})
		var requests sync.WaitGroup
		for i := range 3 {
			requests.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					least := seen.Load()
					_, reason, err := fixture.Authorize(t.Context(), attributesFor(fmt.Sprint(i%2)))
					var at int64
					if _, scanErr := fmt.Sscan(reason, &at); err != nil || scanErr != nil || at < least {
						t.Errorf("got a decision at revision %q, errors %v and %v; want at least revision %d", reason, err, scanErr, least)
						return
					}
				}
			})
		}
		for i := int64(1); i <= 40; i++ {
			policy.Store(i)
			fixture.PolicyChanged(rbac.Change{Position: positionAt(i), All: true})
			seen.Store(i)
			fixture.authorize(t, attributesFor("0"))
		}
		close(stop)
		requests.Wait()
	}
}

// TestLaggingWebhookNeverDecidesOnOldPolicy races requests with changes that the webhook sees after
// the API server.
func TestLaggingWebhookNeverDecidesOnOldPolicy(t *testing.T) {
	fixture := newFixture(t, nil)
	var policy, seen atomic.Int64 // at the webhook, at the API server
	fixture.service.respond = func(w http.ResponseWriter, _ map[string]any, s *status) bool {
		at := policy.Load()
		w.Header().Set(rbac.PositionHeader, positionAt(at).String())
		s.Allowed, s.Reason = true, fmt.Sprint(at)
		return false
	}
	stop := make(chan struct{})
	var requests sync.WaitGroup
	for i := range 3 {
		requests.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				least := seen.Load()
				_, reason, err := fixture.Authorize(t.Context(), attributesFor(fmt.Sprint(i%2)))
				var at int64
				if _, scanErr := fmt.Sscan(reason, &at); err != nil || scanErr != nil || at < least {
					t.Errorf("got a decision at revision %q, errors %v and %v; want at least revision %d", reason, err, scanErr, least)
					return
				}
			}
		})
	}
	for i := int64(1); i <= 20; i++ {
		fixture.PolicyChanged(rbac.Change{Position: positionAt(i), All: true})
		seen.Store(i)
		calls := fixture.service.calls.Load()
		for fixture.service.calls.Load() < calls+1 && !t.Failed() { // some request gets an older position
			runtime.Gosched()
		}
		policy.Store(i)
	}
	close(stop)
	requests.Wait()
}

// TestWebhookBehindPolicyIsCalledAgain checks that the webhook sees a change after the API server.
func TestWebhookBehindPolicyIsCalledAgain(t *testing.T) {
	for _, behind := range []rbac.Position{positionAt(1), {2, 2, 1, 2}} {
		fixture := newFixture(t, nil)
		var at atomic.Pointer[rbac.Position]
		at.Store(&behind)
		newest := positionAt(2)
		fixture.service.respond = func(w http.ResponseWriter, _ map[string]any, s *status) bool {
			if fixture.service.calls.Load() == 3 {
				at.Store(&newest)
			}
			w.Header().Set(rbac.PositionHeader, at.Load().String())
			s.Allowed = *at.Load() != newest // the change revokes the permission
			return false
		}
		fixture.PolicyChanged(rbac.Change{Position: newest, All: true})
		for range 2 { // from the webhook, then from the cache
			if got := fixture.authorize(t, attributesFor("x")); got != "no-opinion" {
				t.Errorf("%s: got a decision of an older policy: %s, want \"no-opinion\"", &behind, got)
			}
		}
		if n := fixture.service.calls.Load(); n != 3 {
			t.Errorf("%s: got %d calls, want 3", &behind, n)
		}
	}
}

// TestWebhookThatStaysBehindIsNotCached checks that its decision counts for one request.
func TestWebhookThatStaysBehindIsNotCached(t *testing.T) {
	f := newFixture(t, nil)
	f.service.respond = func(w http.ResponseWriter, _ map[string]any, s *status) bool {
		w.Header().Set(rbac.PositionHeader, positionAt(1).String())
		s.Allowed = true
		return false
	}
	f.PolicyChanged(rbac.Change{Position: positionAt(2), All: true})
	for range 2 {
		if got := f.authorize(t, attributesFor("x")); got != "allowed" {
			t.Errorf("got %q, want \"allowed\"", got)
		}
		if n := f.service.calls.Swap(0); n < 2 || n > 8 {
			t.Errorf("got %d calls: the API server waited not at all or too long, or cached an older decision; want at least 2, at most 8",
				n)
		}
	}
}

// TestRequestsDoNotJoinCallsFromBeforeAChange uses a webhook that does not report its position.
func TestRequestsDoNotJoinCallsFromBeforeAChange(t *testing.T) {
	fixture := newFixture(t, nil)
	release, arrived := make(chan struct{}), make(chan struct{})
	fixture.service.respond = func(_ http.ResponseWriter, _ map[string]any, s *status) bool {
		arrived <- struct{}{}
		<-release
		s.Allowed = true
		return false
	}
	done := make(chan struct{})
	go func() { defer close(done); fixture.authorize(t, attributesFor("x")) }()
	<-arrived
	fixture.PolicyChanged(rbac.Change{Position: positionAt(2), All: true}) // during the first call
	later := make(chan struct{})
	go func() { defer close(later); fixture.authorize(t, attributesFor("x")) }()
	select {
	case <-arrived:
	case <-time.After(20 * time.Second):
		t.Error("request after the change: got no call of its own, want one")
	}
	close(release)
	<-done
	<-later
}

// TestNamespaceChangesInvalidateTheirNamespaceOnly covers services that report their
// position and services that do not.
func TestNamespaceChangesInvalidateTheirNamespaceOnly(t *testing.T) {
	for _, reports := range []bool{true, false} {
		fixture := newFixture(t, nil)
		at := positionAt(1)
		fixture.service.respond = func(w http.ResponseWriter, _ map[string]any, s *status) bool {
			if reports {
				w.Header().Set(rbac.PositionHeader, at.String())
			}
			s.Allowed = true
			return false
		}
		decisionRevision := func(namespace string) int64 {
			q := attributesFor("x")
			q.Namespace = namespace
			fixture.authorize(t, q)
			return fixture.service.calls.Swap(0)
		}
		// asks checks the number of calls for the namespaces a and b and for the cluster scope.
		expectCalls := func(step string, want ...int64) {
			t.Helper()
			if got := []int64{decisionRevision("a"), decisionRevision("b"), decisionRevision("")}; !slices.Equal(got, want) {
				t.Errorf("%s: got %v calls, want %v", step, got, want)
			}
		}
		fixture.PolicyChanged(rbac.Change{Position: at, All: true})
		expectCalls("first", 1, 1, 1)
		at[2] = 2
		fixture.PolicyChanged(rbac.Change{Position: at})
		expectCalls("metadata", 0, 0, 0)
		at[2] = 3
		fixture.PolicyChanged(rbac.Change{Position: at, Namespaces: map[string]struct{}{"a": {}}})
		expectCalls("a role binding in a", 1, 0, 0)
		expectCalls("cached again", 0, 0, 0)
		at[1] = 4
		fixture.PolicyChanged(rbac.Change{Position: at, All: true})
		expectCalls("a cluster role", 1, 1, 1)
		expectCalls("cached again", 0, 0, 0)

		// When too many namespaces have changed, older changes count for all namespaces, but not
		// for decisions made since.
		at[2] = 5
		fixture.PolicyChanged(rbac.Change{Position: at, Namespaces: map[string]struct{}{"a": {}}})
		for i := range int64(5000) {
			at[2] = 6 + i
			fixture.PolicyChanged(rbac.Change{Position: at, Namespaces: map[string]struct{}{fmt.Sprint("n", i): {}}})
		}
		expectCalls("a change in many namespaces", 1, 1, 1)
		expectCalls("cached again", 0, 0, 0)
		fixture.PolicyChanged(rbac.Change{Position: at, Namespaces: map[string]struct{}{"one more": {}}})
		expectCalls("an overflow by an older change", 0, 0, 0)
	}
}

// TestUnrelatedChangesAreNotAwaited uses a webhook that has not seen the last change of another
// namespace.
func TestUnrelatedChangesAreNotAwaited(t *testing.T) {
	f := newFixture(t, nil)
	f.service.respond = func(w http.ResponseWriter, _ map[string]any, s *status) bool {
		w.Header().Set(rbac.PositionHeader, positionAt(1).String())
		s.Allowed = true
		return false
	}
	f.PolicyChanged(rbac.Change{Position: positionAt(1), All: true})
	f.PolicyChanged(rbac.Change{Position: positionAt(2), Namespaces: map[string]struct{}{"other": {}}})
	f.authorize(t, attributesFor("x"))
	f.authorize(t, attributesFor("x"))
	if n := f.service.calls.Load(); n != 1 {
		t.Errorf("called %d times, want 1", n)
	}
}
