package aggregation_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/api/aggregation"
	"binnacle/services/apiserver/internal/cache/objects"
	apiregistrationv1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
)

// clock is a clock that a test advances.
type clock struct {
	start   time.Time
	elapsed atomic.Int64 // nanoseconds
}

func newClock() *clock { return &clock{start: time.Now()} }

func (c *clock) now() time.Time { return c.start.Add(time.Duration(c.elapsed.Load())) }

func (c *clock) advance(d time.Duration) { c.elapsed.Add(int64(d)) }

// waitForRegistered waits until the aggregator has n APIServices.
func (agg *fixture) waitForRegistered(n int) {
	agg.t.Helper()
	agg.eventually(fmt.Sprintf("%d APIServices are registered", n), func() bool {
		registered := 0
		for range agg.Registered() {
			registered++
		}
		return registered == n
	})
}

// waitForPass waits until the aggregator has looked at all APIServices and started the checks that
// are due. There must be one APIService with a server: each pass calls Local once for it, so that
// the second call from now on shows that the pass of the first call is complete.
func (agg *fixture) waitForPass() {
	agg.t.Helper()
	localCalls := func() int {
		agg.mu.Lock()
		defer agg.mu.Unlock()
		return agg.localCalls
	}
	before := localCalls()
	agg.eventually("a pass over the checks is complete", func() bool { agg.TriggerChecks(); return localCalls() >= before+2 })
}

// makeChecksDue advances the clock and schedules all checks, so that all of them are due.
func (agg *fixture) makeChecksDue(times *clock) {
	times.advance(2 * time.Second) // longer than the minimum time between two checks
	agg.CheckAll()
}

// countNotifications returns how often the aggregator has called its OnChange function.
func (agg *fixture) countNotifications() int {
	agg.mu.Lock()
	defer agg.mu.Unlock()
	return agg.notifications
}

// TestChangesAreNotified checks that the aggregator notifies of each change of resources, documents
// and availability, and that checks of an unchanged server cause no notification.
func TestChangesAreNotified(t *testing.T) { inBubble(t, changesAreNotified) }

func changesAreNotified(t *testing.T, n *network) {
	authority := newAuthority(t)
	server := n.extend(t, authority.issueServing(), serveResources)
	times := newClock()
	agg := n.start(t, func(_ *fixture, c *aggregation.Config) { c.Now = times.now })
	agg.register(server, authority.pem)
	agg.eventually("the aggregator notifies", func() bool { return agg.countNotifications() > 0 })

	// newHandler returns a handler that serves one resource, whose document has the relative URL
	// documentURL in the v3 index. If resource is empty, requests for the resources fail, but
	// checks, which send no Accept header, succeed. If documentURL is empty, there is no index.
	newHandler := func(resource, documentURL string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/openapi/v3" && documentURL != "":
				fmt.Fprintf(w, `{"paths":{"apis/ext.test/v1":{"serverRelativeURL":%q}}}`, documentURL)
			case r.URL.Path == "/apis/ext.test/v1" && r.Header.Get("Accept") != "" && resource == "":
				w.WriteHeader(http.StatusInternalServerError)
			case r.URL.Path == "/apis/ext.test/v1":
				fmt.Fprintf(w, `{"resources":[{"name":%q}]}`, resource)
			default:
				http.NotFound(w, r)
			}
		}
	}
	for _, test := range []struct {
		change string
		serve  http.HandlerFunc
	}{
		{change: "other resources", serve: newHandler("others", "")},
		{change: "discovery fails", serve: newHandler("", "")},
		{change: "discovery works again", serve: newHandler("others", "")},
		{change: "a document", serve: newHandler("others", "/x")},
		{change: "another document", serve: newHandler("others", "/x?hash=2")},
		{change: "no document", serve: newHandler("others", "")},
		{change: "server unavailable", serve: http.NotFound},
		{change: "server available", serve: newHandler("others", "")},
	} {
		before := agg.countNotifications()
		server.handle(test.serve)
		agg.makeChecksDue(times)
		agg.eventually("the aggregator notifies of the change: "+test.change, func() bool { return agg.countNotifications() > before })
	}
	agg.eventually("the server is available", func() bool { return agg.condition(name) == passed })
	before, requests := agg.countNotifications(), len(server.requests("/openapi/v3"))
	agg.eventually("the server is checked twice", func() bool {
		agg.makeChecksDue(times)
		return len(server.requests("/openapi/v3")) >= requests+2
	})
	if n := agg.countNotifications() - before; n != 0 {
		t.Errorf("got %d notifications without a change, want 0", n)
	}
}

// TestTransitionTimeFollowsTheStatus checks that the aggregator notifies of a new reason, but changes
// the transition time of the condition only with its status.
func TestTransitionTimeFollowsTheStatus(t *testing.T) { inBubble(t, transitionTimeFollowsTheStatus) }

func transitionTimeFollowsTheStatus(t *testing.T, n *network) {
	authority := newAuthority(t)
	server := n.extend(t, authority.issue("late.agg.svc", x509.ExtKeyUsageServerAuth), serveResources)
	times := newClock()
	agg := n.start(t, func(_ *fixture, c *aggregation.Config) { c.Now = times.now })
	s := apiService(server.port, authority.pem)
	s.Spec.Service.Name = "late"
	agg.board.put(name, s)
	transitionTimeOf := func(reason string) time.Time {
		agg.eventually("the reason is "+reason, func() bool { return strings.Contains(agg.condition(name), " "+reason+" ") })
		return agg.board.get(name).Status.Conditions[0].LastTransitionTime.Time
	}
	putService := func(spec corev1.ServiceSpec) {
		agg.mu.Lock()
		defer agg.mu.Unlock()
		agg.services["agg/late"] = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "agg", Name: "late"}, Spec: spec}
	}
	first := transitionTimeOf("ServiceNotFound")
	notifications := agg.countNotifications()
	times.advance(time.Hour)
	putService(corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP})
	if second := transitionTimeOf("ServicePortError"); !second.Equal(first) {
		t.Errorf("new reason, same status: got transition time %v, want %v", second, first)
	}
	agg.eventually("the aggregator notifies", func() bool { return agg.countNotifications() > notifications })
	if n := sumMetric(t, agg, "aggregator_unavailable_apiservice_total"); n != 2 {
		t.Errorf("got metric aggregator_unavailable_apiservice_total = %v, want 2: one for each reason", n)
	}
	times.advance(time.Hour)
	putService(corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"})
	if third := transitionTimeOf("Passed"); !third.After(first.Add(time.Hour)) {
		t.Errorf("new status: got transition time %v, want at least 1h after %v", third, first)
	}
}

// TestAvailableServerIsCheckedRarely checks that an available server is checked rarely. A change
// during a check leads to another check soon after. Checks of one server never overlap.
func TestAvailableServerIsCheckedRarely(t *testing.T) { inBubble(t, availableServerIsCheckedRarely) }

func availableServerIsCheckedRarely(t *testing.T, n *network) {
	authority := newAuthority(t)
	checkStarted, finishCheck := make(chan struct{}, 8), make(chan struct{})
	var blockChecks atomic.Bool
	server := n.extend(t, authority.issueServing(), func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/openapi/v3" && blockChecks.Load() {
			checkStarted <- struct{}{}
			<-finishCheck
		}
		serveResources(w, r)
	})
	times := newClock()
	agg := n.start(t, func(_ *fixture, c *aggregation.Config) { c.Now = times.now })
	agg.register(server, authority.pem)
	checks := func() int { return len(server.requests("/openapi/v3")) } // each check requests the index once
	requireChecks := func(when string, want int) {
		t.Helper()
		agg.eventually(fmt.Sprintf("%s, the server was checked %d times", when, want), func() bool { return checks() >= want })
		agg.waitForPass()
		if n := checks(); n != want {
			t.Errorf("%s: got %d checks, want %d", when, n, want)
		}
	}
	agg.eventually("the aggregator has read the condition that it wrote", func() bool {
		for apiService := range agg.Registered() {
			return len(apiService.Status.Conditions) == 1
		}
		return false
	})
	// An available server is checked every 30 s. A check that is running is not repeated, but a change
	// during it leads to another check.
	times.advance(2 * time.Second)
	agg.waitForPass()
	first := checks()
	blockChecks.Store(true)
	times.advance(28 * time.Second)
	requireChecks("after 30 s", first+1)
	<-checkStarted
	times.advance(time.Minute)
	requireChecks("during a check", first+1)
	agg.CheckAll()
	agg.waitForPass()
	times.advance(2 * time.Second)
	blockChecks.Store(false)
	close(finishCheck)
	requireChecks("after a change during the check", first+2)

	// A change of metadata needs no check. A condition that another client changed needs one.
	times.advance(2 * time.Second)
	apiService := agg.board.get(name)
	apiService.Annotations = map[string]string{"new": "annotation"}
	agg.board.put(name, apiService)
	agg.eventually("the aggregator has read the annotation", func() bool {
		for apiService := range agg.Registered() {
			return apiService.Annotations["new"] != ""
		}
		return false
	})
	requireChecks("after a change of annotations", first+2)
	apiService = agg.board.get(name)
	apiService.Status.Conditions[0].Status = apiregistrationv1.ConditionFalse
	agg.board.put(name, apiService)
	agg.eventually("a check corrects a wrong condition", func() bool { return agg.condition(name) == passed && checks() == first+3 })
	times.advance(2 * time.Second)
	apiService = agg.board.get(name)
	apiService.Status.Conditions = nil
	agg.board.put(name, apiService)
	agg.eventually("a check restores a removed condition", func() bool { return agg.condition(name) == passed && checks() == first+4 })
}

// TestStoredConditionCountsBeforeTheFirstCheck checks that until the first check of a server ends,
// the stored condition of its APIService decides whether requests are proxied. A check that is
// aborted writes no condition.
func TestStoredConditionCountsBeforeTheFirstCheck(t *testing.T) {
	inBubble(t, storedConditionCountsBeforeTheFirstCheck)
}

func storedConditionCountsBeforeTheFirstCheck(t *testing.T, n *network) {
	authority := newAuthority(t)
	server := n.extend(t, authority.issueServing(), serveResourcesAndEcho)
	checkStarted := make(chan struct{}, 1)
	agg := n.start(t, func(_ *fixture, c *aggregation.Config) {
		c.Service = func(ctx context.Context, _, _ string) (*corev1.Service, error) {
			select {
			case checkStarted <- struct{}{}:
			default:
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	agg.board.put(name, apiService(server.port, authority.pem))
	<-checkStarted
	if w := agg.send(eve, httptest.NewRequest("GET", thingPath, nil)); w.Code != http.StatusServiceUnavailable {
		t.Errorf("without a condition: got %d %s, want 503", w.Code, w.Body)
	}
	s := apiService(server.port, authority.pem)
	s.Status.Conditions = []apiregistrationv1.APIServiceCondition{
		{
			Type:   "Another",
			Status: apiregistrationv1.ConditionFalse,
		}, {Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue},
	}
	agg.board.put(name, s)
	agg.eventually("requests reach the server", func() bool {
		return agg.send(eve, httptest.NewRequest("GET", thingPath, nil)).Code == http.StatusTeapot
	})
	agg.stop()
	if len(agg.written) != 0 || agg.notifications != 0 {
		t.Errorf("the aborted check wrote the conditions %v and caused %d notifications, want none", agg.written, agg.notifications)
	}
}

// TestCorruptAPIServiceDoesNotAffectOthers checks that an APIService that cannot be decoded does not
// affect the others.
func TestCorruptAPIServiceDoesNotAffectOthers(t *testing.T) {
	inBubble(t, corruptAPIServiceDoesNotAffectOthers)
}

func corruptAPIServiceDoesNotAffectOthers(t *testing.T, n *network) {
	authority := newAuthority(t)
	server := n.extend(t, authority.issueServing(), serveResourcesAndEcho)
	agg := n.start(t, func(_ *fixture, c *aggregation.Config) {
		decode := c.Decode
		c.Decode = func(entry *objects.Entry) (*apiregistrationv1.APIService, error) {
			if entry.Name() == "broken" {
				return nil, errors.New("not an APIService")
			}
			return decode(entry)
		}
	})
	agg.board.put("broken", apiService(server.port, authority.pem))
	agg.register(server, authority.pem)
	local := apiService(server.port, nil)
	local.Name, local.Spec.Version, local.Spec.Service = "v2.ext.test", "v2", nil
	agg.board.put(local.Name, local)
	agg.waitForRegistered(2)
	for range agg.Registered() {
		break // the iterator must support it
	}
	if w := agg.send(eve, httptest.NewRequest("GET", thingPath, nil)); w.Code != http.StatusTeapot {
		t.Errorf("GET %s: got %d %s, want %d from the extension server", thingPath, w.Code, w.Body, http.StatusTeapot)
	}
}

// TestRequestsFollowPortOfAPIService checks that requests go to another server after the port in the
// APIService changes.
func TestRequestsFollowPortOfAPIService(t *testing.T) { inBubble(t, requestsFollowPortOfAPIService) }

func requestsFollowPortOfAPIService(t *testing.T, n *network) {
	authority := newAuthority(t)
	cert := authority.issueServing()
	old, other := n.extend(t, cert, serveResourcesAndEcho), n.extend(t, cert, serveResourcesAndEcho)
	agg := n.start(t, nil)
	agg.register(old, authority.pem)
	agg.register(other, authority.pem)
	agg.eventually("requests reach the other server", func() bool {
		agg.send(eve, httptest.NewRequest("GET", thingPath, nil))
		return len(other.requests(thingPath)) > 0
	})
}

// TestUnresolvableServersAreStale checks that a server whose address is unknown or invalid is
// unavailable and its resources stale. If only discovery fails to resolve the address, the server
// stays available.
func TestUnresolvableServersAreStale(t *testing.T) { inBubble(t, unresolvableServersAreStale) }

func unresolvableServersAreStale(t *testing.T, n *network) {
	authority := newAuthority(t)
	for _, test := range []struct {
		host string
		err  error
		want string
	}{
		{host: "", err: errors.New("nowhere"), want: "nowhere"},
		{host: "no host:443", err: nil, want: "invalid URL"},
	} {
		server := n.extend(t, authority.issueServing(), serveResources)
		// The check resolves the address first, discovery second.
		for _, firstFailure := range []int64{1, 2} {
			var calls atomic.Int64
			agg := n.start(t, func(_ *fixture, config *aggregation.Config) {
				resolve := config.Resolve
				config.Resolve = func(ctx context.Context, namespace, name string, port int32) (string, error) {
					if calls.Add(1) >= firstFailure {
						return test.host, test.err
					}
					return resolve(ctx, namespace, name, port)
				}
			})
			agg.board.put(name, apiService(server.port, authority.pem))
			agg.eventually("a condition is written", func() bool { return agg.condition(name) != "" })
			want := test.want
			if firstFailure == 2 {
				want = passed
			}
			if got := agg.condition(name); !strings.Contains(got, want) {
				t.Errorf("Resolve returns %q, %v from call %d on: got condition %s, want it to contain %q",
					test.host, test.err, firstFailure, got, want)
			}
			if all := agg.Versions(); len(all) != 1 || !all[0].Stale {
				t.Errorf("Resolve returns %q, %v from call %d on: got versions %+v, want one, stale", test.host, test.err, firstFailure, all)
			}
			agg.stop()
		}
	}
}

// TestCheckRejectsSwitchingProtocols checks that a server that returns 101 is unavailable.
func TestCheckRejectsSwitchingProtocols(t *testing.T) { inBubble(t, checkRejectsSwitchingProtocols) }

func checkRejectsSwitchingProtocols(t *testing.T, n *network) {
	authority := newAuthority(t)
	server := n.extend(t, authority.issueServing(), func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: odd/1\r\n\r\n")
	})
	server.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c := server.TLS.Clone()
		c.NextProtos = []string{"http/1.1"}
		return c, nil
	}
	agg := n.start(t, nil)
	agg.board.put(name, apiService(server.port, authority.pem))
	agg.eventually("a condition is written", func() bool { return agg.condition(name) != "" })
	if got := agg.condition(name); !strings.HasPrefix(got, "False FailedDiscoveryCheck") || !strings.HasSuffix(got, ": 101") {
		t.Errorf("got condition %s, want FailedDiscoveryCheck with status 101", got)
	}
}

// TestEqualConditionsIgnoresPorts checks that EqualConditions ignores addresses and ports, which
// differ from check to check.
func TestEqualConditionsIgnoresPorts(t *testing.T) {
	// parseCondition parses "Status Reason Message".
	parseCondition := func(text string) *apiregistrationv1.APIServiceCondition {
		parts := strings.SplitN(text, " ", 3)
		return &apiregistrationv1.APIServiceCondition{
			Status: apiregistrationv1.ConditionStatus(parts[0]), Reason: parts[1], Message: parts[2],
		}
	}
	const failed = "False FailedDiscoveryCheck failing or missing response from https://localhost:1/apis/ext.test/v1: "
	const refused = "dial tcp 127.0.0.1:1: connect: connection refused"
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{a: passed, b: passed, want: true},
		{a: passed, b: failed + "EOF", want: false},
		{a: failed + "EOF", b: failed + "read tcp 127.0.0.1:4->127.0.0.1:1: read: connection reset by peer", want: true},
		{
			a:    failed + "read tcp 127.0.0.1:4->127.0.0.1:1: i/o timeout",
			b:    failed + "read tcp 127.0.0.1:5->127.0.0.1:1: i/o timeout",
			want: true,
		},
		{a: failed + "EOF", b: failed + refused, want: false},
		{a: failed + "context deadline exceeded", b: failed + refused, want: false},
		{a: failed + "bad status from x: 500", b: failed + "bad status from x: 404", want: false},
		{a: failed + "bad status from x: 500", b: failed + "EOF", want: false},
		{a: failed + refused, b: failed + "EOF", want: false},
		{a: failed + refused, b: failed + "dial tcp 127.0.0.1:2: connect: connection refused", want: true},
		{a: "False MissingEndpoints a", b: "False MissingEndpoints b", want: false},
		{a: "False ServiceNotFound a", b: "False EndpointsNotFound a", want: false},
	} {
		if got := aggregation.EqualConditions(parseCondition(test.a), parseCondition(test.b)); got != test.want {
			t.Errorf("EqualConditions(%q, %q) = %v, want %v", test.a, test.b, got, test.want)
		}
	}
}
