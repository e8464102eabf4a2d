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
	begin time.Time
	later atomic.Int64
}

func newClock() *clock { return &clock{begin: time.Now()} }

func (c *clock) now() time.Time { return c.begin.Add(time.Duration(c.later.Load())) }

func (c *clock) advance(d time.Duration) { c.later.Add(int64(d)) }

// registered waits until the aggregator has n APIServices.
func (b *fixture) registered(n int) {
	b.t.Helper()
	b.eventually("registered", func() bool {
		known := 0
		for range b.Registered() {
			known++
		}
		return known == n
	})
}

// rounds waits for a full pass over the due checks. There must be one server.
func (b *fixture) rounds() {
	b.t.Helper()
	count := func() int {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.locals
	}
	first := count()
	b.eventually("pass completed", func() bool { b.TriggerChecks(); return count() >= first+2 })
}

// poke makes all checks due now.
func (b *fixture) poke(times *clock) {
	times.advance(2 * time.Second) // longer than the minimum time between two checks
	b.CheckAll()
}

func (b *fixture) notifications() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

// TestChangesAreNotified checks that each change of resources, documents and availability is
// notified, an unchanged server is not.
func TestChangesAreNotified(t *testing.T) {
	ca := newAuthority(t)
	e := startExtension(t, ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth), plain)
	times := newClock()
	b := start(t, func(_ *fixture, c *aggregation.Config) { c.Now = times.now })
	b.register(e, ca.pem)
	b.eventually("first notification", func() bool { return b.notifications() > 0 })
	// serving serves one resource, whose document has the given relative URL in the v3 index.
	serving := func(resource, index string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/openapi/v3" && index != "":
				fmt.Fprintf(w, `{"paths":{"apis/ext.test/v1":{"serverRelativeURL":%q}}}`, index)
			case r.URL.Path == "/apis/ext.test/v1" && r.Header.Get("Accept") != "" && resource == "":
				w.WriteHeader(http.StatusInternalServerError)
			case r.URL.Path == "/apis/ext.test/v1":
				fmt.Fprintf(w, `{"resources":[{"name":%q}]}`, resource)
			default:
				http.NotFound(w, r)
			}
		}
	}
	for _, c := range []struct {
		what  string
		serve http.HandlerFunc
	}{
		{what: "other resources", serve: serving("others", "")},
		{what: "resources unknown", serve: serving("", "")},
		{what: "resources known again", serve: serving("others", "")},
		{what: "a document", serve: serving("others", "/x")},
		{what: "another document", serve: serving("others", "/x?hash=2")},
		{what: "no document", serve: serving("others", "")},
		{what: "server unavailable", serve: http.NotFound},
		{what: "server available", serve: serving("others", "")},
	} {
		before := b.notifications()
		e.handle(c.serve)
		b.poke(times)
		b.eventually("notified of "+c.what, func() bool { return b.notifications() > before })
	}
	b.eventually("available", func() bool { return b.condition(name) == passed })
	before, requests := b.notifications(), len(e.requests("/openapi/v3"))
	b.eventually("checked again", func() bool { b.poke(times); return len(e.requests("/openapi/v3")) >= requests+2 })
	if n := b.notifications() - before; n != 0 {
		t.Errorf("got %d notifications without a change, want 0", n)
	}
}

// TestTransitionTimeFollowsTheStatus checks that a new reason is notified, but keeps the transition
// time of the status.
func TestTransitionTimeFollowsTheStatus(t *testing.T) {
	ca := newAuthority(t)
	e := startExtension(t, ca.issue("late.agg.svc", x509.ExtKeyUsageServerAuth), plain)
	times := newClock()
	b := start(t, func(_ *fixture, c *aggregation.Config) { c.Now = times.now })
	s := apiService(e.port, ca.pem)
	s.Spec.Service.Name = "late"
	b.board.put(name, s)
	since := func(reason string) time.Time {
		b.eventually(reason, func() bool { return strings.Contains(b.condition(name), " "+reason+" ") })
		return b.board.get(name).Status.Conditions[0].LastTransitionTime.Time
	}
	serve := func(spec corev1.ServiceSpec) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.services["agg/late"] = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "agg", Name: "late"}, Spec: spec}
	}
	first := since("ServiceNotFound")
	notifications := b.notifications()
	times.advance(time.Hour)
	serve(corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP})
	if second := since("ServicePortError"); !second.Equal(first) {
		t.Errorf("new reason, same status: got transition time %v, want %v", second, first)
	}
	b.eventually("notified", func() bool { return b.notifications() > notifications })
	if n := metrics(t, b, "aggregator_unavailable_apiservice_total"); n != 2 {
		t.Errorf("got %v counted reasons, want 2", n)
	}
	times.advance(time.Hour)
	serve(corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"})
	if third := since("Passed"); !third.After(first.Add(time.Hour)) {
		t.Errorf("new status: got transition time %v, want at least 1h after %v", third, first)
	}
}

// TestCheckSchedule checks that an available server is checked rarely. A change during a check
// leads to another check soon after. Checks of one server never overlap.
func TestCheckSchedule(t *testing.T) {
	ca := newAuthority(t)
	held, goOn := make(chan bool, 8), make(chan bool)
	var holds atomic.Bool
	e := startExtension(t, ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth), func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/openapi/v3" && holds.Load() {
			held <- true
			<-goOn
		}
		plain(w, r)
	})
	times := newClock()
	b := start(t, func(_ *fixture, c *aggregation.Config) { c.Now = times.now })
	b.register(e, ca.pem)
	requests := func() int { return len(e.requests("/openapi/v3")) }
	looked := func(what string, want int) {
		t.Helper()
		b.eventually(what, func() bool { return requests() >= want })
		b.rounds()
		if n := requests(); n != want {
			t.Errorf("%s: got %d checks, want %d", what, n, want)
		}
	}
	// Wait until the written condition was read back.
	b.eventually("read back", func() bool {
		for s := range b.Registered() {
			return len(s.Status.Conditions) == 1
		}
		return false
	})
	times.advance(2 * time.Second)
	b.rounds()
	first := requests()
	holds.Store(true)
	times.advance(28 * time.Second)
	looked("after 30 s", first+1)
	<-held
	times.advance(time.Minute)
	looked("during a check", first+1)
	b.CheckAll()
	b.rounds()
	times.advance(2 * time.Second)
	holds.Store(false)
	close(goOn)
	looked("after a change during the check", first+2)

	times.advance(2 * time.Second)
	s := b.board.get(name)
	s.Annotations = map[string]string{"more": "said"}
	b.board.put(name, s)
	b.eventually("read", func() bool {
		for s := range b.Registered() {
			return s.Annotations["more"] != ""
		}
		return false
	})
	looked("after a change of annotations", first+2)
	s = b.board.get(name)
	s.Status.Conditions[0].Status = apiregistrationv1.ConditionFalse
	b.board.put(name, s)
	b.eventually("status corrected", func() bool { return b.condition(name) == passed && requests() == first+3 })
	times.advance(2 * time.Second)
	s = b.board.get(name)
	s.Status.Conditions = nil
	b.board.put(name, s)
	b.eventually("put back", func() bool { return b.condition(name) == passed && requests() == first+4 })
}

// TestStoredConditionCountsBeforeTheFirstCheck checks that until a server is checked here, the
// condition of its APIService decides. A check that is aborted reports nothing.
func TestStoredConditionCountsBeforeTheFirstCheck(t *testing.T) {
	ca := newAuthority(t)
	e := startExtension(t, ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth), things)
	checked := make(chan bool, 1)
	b := start(t, func(_ *fixture, c *aggregation.Config) {
		c.Service = func(ctx context.Context, _, _ string) (*corev1.Service, error) {
			select {
			case checked <- true:
			default:
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	b.board.put(name, apiService(e.port, ca.pem))
	<-checked
	if w := b.send(eve, httptest.NewRequest("GET", thing, nil)); w.Code != http.StatusServiceUnavailable {
		t.Errorf("without a condition: got %d %s, want 503", w.Code, w.Body)
	}
	s := apiService(e.port, ca.pem)
	s.Status.Conditions = []apiregistrationv1.APIServiceCondition{
		{Type: "Another", Status: apiregistrationv1.ConditionFalse}, {Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue},
	}
	b.board.put(name, s)
	b.eventually("there", func() bool { return b.send(eve, httptest.NewRequest("GET", thing, nil)).Code == http.StatusTeapot })
	b.stop()
	if len(b.written) != 0 || b.changed != 0 {
		t.Errorf("got conditions %v and %d notifications, want none", b.written, b.changed)
	}
}

// TestUndecodableAPIServicesAreSkipped checks that such have no handler, and other APIServices
// work.
func TestUndecodableAPIServicesAreSkipped(t *testing.T) {
	ca := newAuthority(t)
	e := startExtension(t, ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth), things)
	b := start(t, func(_ *fixture, c *aggregation.Config) {
		decode := c.Decode
		c.Decode = func(entry *objects.Entry) (*apiregistrationv1.APIService, error) {
			if entry.Name() == "broken" {
				return nil, errors.New("not an APIService")
			}
			return decode(entry)
		}
	})
	b.board.put("broken", apiService(e.port, ca.pem))
	b.register(e, ca.pem)
	local := apiService(e.port, nil)
	local.Name, local.Spec.Version, local.Spec.Service = "v2.ext.test", "v2", nil
	b.board.put(local.Name, local)
	b.registered(2)
	for range b.Registered() {
		break
	}
	if w := b.send(eve, httptest.NewRequest("GET", thing, nil)); w.Code != http.StatusTeapot {
		t.Errorf("got %d %s, want %v", w.Code, w.Body, http.StatusTeapot)
	}
}

// TestServersThatMove checks that a new port in the APIService leads to another server.
func TestServersThatMove(t *testing.T) {
	ca := newAuthority(t)
	cert := ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth)
	old, other := startExtension(t, cert, things), startExtension(t, cert, things)
	b := start(t, nil)
	b.register(old, ca.pem)
	b.register(other, ca.pem)
	b.eventually("requested there", func() bool {
		b.send(eve, httptest.NewRequest("GET", thing, nil))
		return len(other.requests(thing)) > 0
	})
}

// TestUnresolvableServersAreStale checks that a server whose address is unknown or invalid is
// unavailable. If only discovery fails to resolve it, its resources are stale.
func TestUnresolvableServersAreStale(t *testing.T) {
	ca := newAuthority(t)
	for _, c := range []struct {
		host string
		err  error
		want string
	}{
		{host: "", err: errors.New("nowhere"), want: "nowhere"},
		{host: "no host:443", err: nil, want: "invalid URL"},
	} {
		e := startExtension(t, ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth), plain)
		for _, from := range []int64{1, 2} { // the first call is that of the check
			var calls atomic.Int64
			b := start(t, func(_ *fixture, config *aggregation.Config) {
				resolve := config.Resolve
				config.Resolve = func(ctx context.Context, namespace, name string, port int32) (string, error) {
					if calls.Add(1) >= from {
						return c.host, c.err
					}
					return resolve(ctx, namespace, name, port)
				}
			})
			b.board.put(name, apiService(e.port, ca.pem))
			b.eventually("checked", func() bool { return b.condition(name) != "" })
			if got := b.condition(name); from == 1 && !strings.Contains(got, c.want) || from == 2 && got != passed {
				t.Errorf("from %d on %q, %v: got condition %s, want %q at first, then %q", from, c.host, c.err, got, c.want, passed)
			}
			if all := b.Versions(); len(all) != 1 || !all[0].Stale {
				t.Errorf("from %d on %q, %v: got versions %+v, want one, stale", from, c.host, c.err, all)
			}
			b.stop()
		}
	}
}

// TestCheckRejectsSwitchingProtocols checks that a server that returns 101 is unavailable.
func TestCheckRejectsSwitchingProtocols(t *testing.T) {
	ca := newAuthority(t)
	e := startExtension(t, ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth), func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: odd/1\r\n\r\n")
	})
	e.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c := e.TLS.Clone()
		c.NextProtos = []string{"http/1.1"}
		return c, nil
	}
	b := start(t, nil)
	b.board.put(name, apiService(e.port, ca.pem))
	b.eventually("checked", func() bool { return b.condition(name) != "" })
	if got := b.condition(name); !strings.HasPrefix(got, "False FailedDiscoveryCheck") || !strings.HasSuffix(got, ": 101") {
		t.Errorf("got condition %s, want FailedDiscoveryCheck with status 101", got)
	}
}

// TestSameConditions checks that addresses and ports that differ from check to check are not a
// change.
func TestSameConditions(t *testing.T) {
	const at = "failing or missing response from https://localhost:1/apis/ext.test/v1: "
	condition := func(notifications string) *apiregistrationv1.APIServiceCondition {
		parts := strings.SplitN(notifications, " ", 3)
		return &apiregistrationv1.APIServiceCondition{Status: apiregistrationv1.ConditionStatus(parts[0]), Reason: parts[1], Message: parts[2]}
	}
	const failed = "False FailedDiscoveryCheck " + at
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{a: passed, b: passed, want: true},
		{a: passed, b: failed + "EOF", want: false},
		{a: failed + "EOF", b: failed + "read tcp 127.0.0.1:4->127.0.0.1:1: read: connection reset by peer", want: true},
		{a: failed + "read tcp 127.0.0.1:4->127.0.0.1:1: i/o timeout", b: failed + "read tcp 127.0.0.1:5->127.0.0.1:1: i/o timeout", want: true},
		{a: failed + "EOF", b: failed + "dial tcp 127.0.0.1:1: connect: connection refused", want: false},
		{a: failed + "context deadline exceeded", b: failed + "dial tcp 127.0.0.1:1: connect: connection refused", want: false},
		{a: failed + "bad status from x: 500", b: failed + "bad status from x: 404", want: false},
		{a: failed + "bad status from x: 500", b: failed + "EOF", want: false},
		{a: failed + "dial tcp 127.0.0.1:1: connect: connection refused", b: failed + "EOF", want: false},
		{a: failed + "dial tcp 127.0.0.1:1: connect: connection refused", b: failed + "dial tcp 127.0.0.1:2: connect: connection refused", want: true},
		{a: "False MissingEndpoints a", b: "False MissingEndpoints b", want: false},
		{a: "False ServiceNotFound a", b: "False EndpointsNotFound a", want: false},
	} {
		if got := aggregation.EqualConditions(condition(c.a), condition(c.b)); got != c.want {
			t.Errorf("%q and %q: %v, want %v", c.a, c.b, got, c.want)
		}
	}
}
