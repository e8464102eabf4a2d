package authzwebhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"binnacle/libs/authorizer"
	"binnacle/services/apiserver/internal/request/requesttest"
	"binnacle/services/apiserver/internal/security/authz/authzwebhook"
)

type status = authorizationv1.SubjectAccessReviewStatus

// authorize returns the decision, the reason, and "error" if there is an error, separated by
// spaces.
func (f *fixture) authorize(t *testing.T, attrs *authorizer.Attributes) string {
	t.Helper()
	d, reason, err := f.Authorize(requesttest.WithUser(t.Context(), attrs.User), attrs)
	text := d.String()
	if reason != "" {
		text += " " + reason
	}
	if err != nil {
		text += " error"
	}
	return text
}

// TestWebhookResponseDecides checks the decision for each status of a review, from the webhook and
// from the cache.
func TestWebhookResponseDecides(t *testing.T) {
	fixture := newFixture(t, nil)
	for name, test := range map[string]struct {
		status status
		want   string
	}{
		"allow":          {status: status{Allowed: true, Reason: "yes"}, want: "allowed yes"},
		"deny":           {status: status{Denied: true, Reason: "never"}, want: "denied never"},
		"no opinion":     {status: status{Reason: "perhaps"}, want: "no-opinion perhaps"},
		"allow and deny": {status: status{Allowed: true, Denied: true}, want: "denied error"},
	} {
		fixture.service.respond = func(_ http.ResponseWriter, _ map[string]any, s *status) bool { *s = test.status; return false }
		for range 2 { // from the webhook, then from the cache
			if got := fixture.authorize(t, attributesFor(name)); got != test.want {
				t.Errorf("%s: got %q, want %q", name, got, test.want)
			}
		}
	}
	if n := fixture.service.calls.Load(); n != 4 {
		t.Errorf("got %d calls, want 4", n)
	}
	if rules, err := fixture.RulesFor(t.Context(), &authorizer.User{}, "a"); !rules.Incomplete || err == nil {
		t.Errorf("got rules %+v, error %v, want incomplete ones and an error", rules, err)
	}
}

// TestFieldNamesAreCaseSensitive checks that as in Kubernetes, a field in another case is ignored.
func TestFieldNamesAreCaseSensitive(t *testing.T) {
	f := newFixture(t, nil)
	for statusJSON, want := range map[string]string{
		`{"Allowed":true}`:                 "no-opinion",
		`{"allowed":false,"ALLOWED":true}`: "no-opinion",
		`{"denied":true,"Denied":false}`:   "denied",
	} {
		f.service.respond = func(w http.ResponseWriter, _ map[string]any, _ *status) bool {
			_, _ = fmt.Fprintf(w, `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":%s}`, statusJSON)
			return true
		}
		if got := f.authorize(t, attributesFor(statusJSON)); got != want {
			t.Errorf("%s: got %q, want %q", statusJSON, got, want)
		}
	}
}

// TestRequestIsSuspendedDuringCall checks that a request is suspended while it waits for the
// webhook, and not while a decision is cached.
func TestRequestIsSuspendedDuringCall(t *testing.T) {
	var suspended, suspensions atomic.Int32
	fixture := newFixture(t, func(c *authzwebhook.Config) {
		c.Suspend = func(context.Context) func() {
			suspensions.Add(1)
			suspended.Add(1)
			return func() { suspended.Add(-1) }
		}
	})
	fixture.service.respond = func(_ http.ResponseWriter, _ map[string]any, s *status) bool {
		if suspended.Load() != 1 {
			t.Error("during the call: got a running request, want it suspended")
		}
		*s = status{Allowed: true}
		return false
	}
	for range 2 {
		if got := fixture.authorize(t, attributesFor("a")); got != "allowed" {
			t.Errorf("got %q, want \"allowed\"", got)
		}
	}
	if suspensions.Load() != 1 || suspended.Load() != 0 {
		t.Errorf("got %d suspensions, %d at the end; want 1, 0", suspensions.Load(), suspended.Load())
	}
}

// TestReviewContainsRequestAttributes checks the spec of the review that the webhook receives, in both versions.
func TestReviewContainsRequestAttributes(t *testing.T) {
	attrs := attributesFor("x")
	attrs.Verb, attrs.Name = "list", ""
	attrs.FieldSelector = fields.ParseSelectorOrDie("spec.nodeName=n,a!=b").Requirements()
	selector, err := labels.Parse("x in (b,a),!y,z=1,n>3")
	if err != nil {
		t.Fatal(err)
	}
	attrs.LabelSelector, _ = selector.Requirements()
	const common = `"extra":{"scope":["a","b"]},%s:["dev"],"resourceAttributes":{` +
		`"fieldSelector":{"requirements":[{"key":"a","operator":"NotIn","values":["b"]},{"key":"spec.nodeName","operator":"In","values":["n"]}]},` +
		`"labelSelector":{"requirements":[{"key":"x","operator":"In","values":["a","b"]},{"key":"y","operator":"DoesNotExist"},{"key":"z","operator":"In","values":["1"]}]},` +
		`"namespace":"ns","resource":"pods","verb":"list","version":"v1"},"uid":"u","user":"alice"}`
	for version, groups := range map[string]string{"v1": `"groups"`, "v1beta1": `"group"`} {
		f := newFixture(t, func(c *authzwebhook.Config) { c.Version = version })
		var sent []string
		f.service.respond = func(_ http.ResponseWriter, spec map[string]any, _ *status) bool {
			b, err := json.Marshal(spec)
			if err != nil {
				t.Error(err)
			}
			sent = append(sent, string(b))
			return false
		}
		f.authorize(t, attrs)
		f.authorize(t, &authorizer.Attributes{User: &authorizer.User{Name: "bob"}, Verb: "get", Path: "/x"})
		want := "{" + fmt.Sprintf(common, groups)
		if len(sent) != 2 || sent[0] != want || sent[1] != `{"nonResourceAttributes":{"path":"/x","verb":"get"},"user":"bob"}` {
			t.Errorf("%s: got %s\nwant %s", version, sent, want)
		}
	}
}

// TestDecisionsAreCachedForTheirTTL checks how long decisions are cached, and which ones are not cached at all.
func TestDecisionsAreCachedForTheirTTL(t *testing.T) {
	fixture := newFixture(t, nil)
	fixture.service.respond = func(_ http.ResponseWriter, spec map[string]any, s *status) bool {
		s.Allowed = spec["resourceAttributes"].(map[string]any)["name"] == "yes"
		return false
	}
	wantCalls := func(want int64, step string) {
		t.Helper()
		if got := fixture.service.calls.Swap(0); got != want {
			t.Errorf("%s: got %d calls, want %d", step, got, want)
		}
	}
	authorizeBoth := func() { fixture.authorize(t, attributesFor("yes")); fixture.authorize(t, attributesFor("no")) }
	authorizeBoth()
	authorizeBoth()
	wantCalls(2, "at once")
	fixture.clock.advance(30 * time.Second)
	authorizeBoth()
	wantCalls(1, "after the TTL of denied decisions")
	fixture.clock.advance(5 * time.Minute)
	authorizeBoth()
	wantCalls(2, "after the TTL of allowed decisions")
	big := attributesFor(strings.Repeat("x", 10_000))
	fixture.authorize(t, big)
	fixture.authorize(t, big)
	wantCalls(2, "oversized attributes")
	fixture.service.respond = func(w http.ResponseWriter, _ map[string]any, _ *status) bool {
		w.Header().Set("Cache-Control", "no-store")
		return false
	}
	fixture.authorize(t, attributesFor("node"))
	fixture.authorize(t, attributesFor("node"))
	wantCalls(2, "a response that must not be cached")
	fixture.service.respond = func(_ http.ResponseWriter, _ map[string]any, s *status) bool {
		s.Allowed, s.Denied = true, true
		return false
	}
	fixture.authorize(t, attributesFor("contradictory"))
	fixture.clock.advance(30 * time.Second)
	fixture.authorize(t, attributesFor("contradictory"))
	wantCalls(2, "a contradictory response denies")
}

// TestEachAttributeIsPartOfCacheKey checks that attributes that differ in one field have separate entries.
func TestEachAttributeIsPartOfCacheKey(t *testing.T) {
	fixture := newFixture(t, nil)
	fieldRequirements := func(s string) fields.Requirements { return fields.ParseSelectorOrDie(s).Requirements() }
	labelRequirements := func(s string) labels.Requirements {
		p, err := labels.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		out, _ := p.Requirements()
		return out
	}
	changes := []func(*authorizer.Attributes){
		func(*authorizer.Attributes) {},
		func(attrs *authorizer.Attributes) { attrs.User.Name = "bob" },
		func(attrs *authorizer.Attributes) { attrs.User.UID = "v" },
		func(attrs *authorizer.Attributes) { attrs.User.Groups = []string{"de", "v"} },
		func(attrs *authorizer.Attributes) { attrs.User.Groups = nil },
		func(attrs *authorizer.Attributes) { attrs.User.Extra = nil },
		func(attrs *authorizer.Attributes) { attrs.User.Extra = map[string][]string{"scope": {"a"}, "b": {}} },
		func(attrs *authorizer.Attributes) { attrs.Verb = "list" },
		func(attrs *authorizer.Attributes) { attrs.Group = "apps" },
		func(attrs *authorizer.Attributes) { attrs.Version = "v2" },
		func(attrs *authorizer.Attributes) { attrs.ResourceName = "jobs" },
		func(attrs *authorizer.Attributes) { attrs.Subresource = "log" },
		func(attrs *authorizer.Attributes) { attrs.Namespace = "" },
		func(attrs *authorizer.Attributes) { attrs.Name = "" },
		func(attrs *authorizer.Attributes) { attrs.FieldSelector = fieldRequirements("a=b") },
		func(attrs *authorizer.Attributes) { attrs.FieldSelector = fieldRequirements("a!=b") },
		func(attrs *authorizer.Attributes) { attrs.LabelSelector = labelRequirements("a=b") },
		func(attrs *authorizer.Attributes) { attrs.LabelSelector = labelRequirements("a in (b,c)") },
		func(attrs *authorizer.Attributes) { attrs.LabelSelector = labelRequirements("a") },
		func(attrs *authorizer.Attributes) { attrs.Resource, attrs.Path = false, "/x" },
		func(attrs *authorizer.Attributes) { attrs.User = nil },
	}
	for range 2 {
		for _, change := range changes {
			attrs := attributesFor("x")
			change(attrs)
			fixture.authorize(t, attrs)
		}
	}
	if n := fixture.service.calls.Load(); n != int64(len(changes)) {
		t.Errorf("%d attributes: got %d calls, want %v", len(changes), n, int64(len(changes)))
	}
}

// TestConcurrentRequestsShareOneCall checks that concurrent equal requests share one call, which
// continues when the first of them is canceled.
func TestConcurrentRequestsShareOneCall(t *testing.T) {
	fixture := newFixture(t, nil)
	release, arrived := make(chan struct{}), make(chan struct{}, 1)
	fixture.service.respond = func(_ http.ResponseWriter, _ map[string]any, s *status) bool {
		arrived <- struct{}{}
		<-release
		s.Allowed = true
		return false
	}
	canceledCtx, cancel := context.WithCancel(t.Context())
	canceled := make(chan error, 1)
	go func() {
		_, _, err := fixture.Authorize(canceledCtx, attributesFor("x"))
		canceled <- err
	}()
	<-arrived
	var requests sync.WaitGroup
	var allowed atomic.Int64
	for range 20 {
		requests.Go(func() {
			if d, _, _ := fixture.Authorize(t.Context(), attributesFor("x")); d == authorizer.Allow {
				allowed.Add(1)
			}
		})
	}
	cancel()
	if err := <-canceled; !errors.Is(err, context.Canceled) {
		t.Errorf("canceled request: got %v, want %v", err, context.Canceled)
	}
	close(release)
	requests.Wait()
	if n := fixture.service.calls.Load(); n != 1 || allowed.Load() != 20 {
		t.Errorf("got %d calls, %d allowed; want 1, 20", n, allowed.Load())
	}
}

// TestCallsPerWebhookAreLimited checks that while a webhook hangs, cached decisions are still
// returned, and one user has at most half of the waiting requests.
func TestCallsPerWebhookAreLimited(t *testing.T) {
	fixture := newFixture(t, nil)
	release := make(chan struct{})
	fixture.service.respond = func(_ http.ResponseWriter, spec map[string]any, s *status) bool {
		if spec["resourceAttributes"].(map[string]any)["name"] != "cached" && spec["user"] != "bob" {
			<-release
		}
		s.Allowed = true
		return false
	}
	if got := fixture.authorize(t, attributesFor("cached")); got != "allowed" {
		t.Fatalf("before the webhook hangs: got %q, want \"allowed\"", got)
	}
	const senders, maxWaiting = 220, 200
	decisions := make(chan string, senders)
	var requests sync.WaitGroup
	for range senders {
		requests.Go(func() { decisions <- fixture.authorize(t, attributesFor("x")) })
	}
	for range senders - maxWaiting {
		if got := <-decisions; got != "no-opinion error" {
			t.Errorf("above the limit: got %s, want \"no-opinion error\"", got)
		}
	}
	if got := fixture.authorize(t, attributesFor("cached")); got != "allowed" {
		t.Errorf("cached: got %s, want \"allowed\"", got)
	}
	other := attributesFor("x")
	other.User = &authorizer.User{Name: "bob"}
	if got := fixture.authorize(t, other); got != "allowed" {
		t.Errorf("another user: got %s, want \"allowed\"", got)
	}
	close(release)
	requests.Wait()
	for range maxWaiting {
		if got := <-decisions; got != "allowed" {
			t.Errorf("waiting request: got %s, want \"allowed\"", got)
		}
	}
}

// TestWebhookServerNeedsNoTLS checks that an http server is accepted, with a warning in the log.
func TestWebhookServerNeedsNoTLS(t *testing.T) {
	s := newService(t)
	var log strings.Builder
	z, err := authzwebhook.New(authzwebhook.Config{
		KubeconfigFile: writeKubeconfig(t, s.Server, strings.Replace(s.URL, "https", "http", 1)),
		Metrics:        authzwebhook.NewMetrics(prometheus.NewRegistry()),
		Logger:         slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	z.Close()
	if !strings.Contains(log.String(), "not encrypted") {
		t.Errorf("got log %q, want it to contain %q", log.String(), "not encrypted")
	}
}

// panickingTransport panics like a faulty library.
type panickingTransport struct{ http.RoundTripper }

func (panickingTransport) RoundTrip(*http.Request) (*http.Response, error) { panic("a library") }

// TestPanicInTransportIsAnError checks that a panic in the transport counts as a failure of the
// service.
func TestPanicInTransportIsAnError(t *testing.T) {
	f := newFixture(t, nil)
	f.Break(panickingTransport{})
	for range 2 {
		if got := f.authorize(t, attributesFor("x")); got != "no-opinion error" {
			t.Errorf("got %s, want \"no-opinion error\"", got)
		}
	}
}
