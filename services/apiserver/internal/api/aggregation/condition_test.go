package aggregation_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/api/aggregation"
	apiregistrationv1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
)

// readyEndpoints returns endpoints with one ready address and a named port.
func readyEndpoints(port string) *corev1.Endpoints {
	return &corev1.Endpoints{Subsets: []corev1.EndpointSubset{{
		Addresses: []corev1.EndpointAddress{{IP: "10.1.1.1"}}, Ports: []corev1.EndpointPort{{Name: port, Port: 8443}},
	}}}
}

// checkCase is a test case of the availability check.
type checkCase struct {
	name      string
	service   *apiregistrationv1.ServiceReference // default: agg/ext, whose server is reachable
	endpoints *corev1.Endpoints                   // of the service agg/cip
	errs      map[string]error                    // as in fixture
	serve     http.HandlerFunc                    // default: serveResources
	want      string                              // condition; <port> stands for the port of the service
}

// failing is the prefix of the condition when the response is missing or wrong.
const failing = "False FailedDiscoveryCheck failing or missing response from https://localhost:<port>/apis/ext.test/v1: "

// TestConditionAvailableNamesTheFault checks the condition Available of APIServices.
func TestConditionAvailableNamesTheFault(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	unreachable := int32(closed.Addr().(*net.TCPAddr).Port)
	notReady := readyEndpoints("https")
	notReady.Subsets[0].NotReadyAddresses, notReady.Subsets[0].Addresses = notReady.Subsets[0].Addresses, nil
	respondCode := func(n int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Location", "/"); w.WriteHeader(n) }
	}
	cip := func(port int32) *apiregistrationv1.ServiceReference {
		return &apiregistrationv1.ServiceReference{Namespace: "agg", Name: "cip", Port: &port}
	}
	for _, c := range []checkCase{
		{name: "response 200", want: passed},
		{name: "response 204", serve: respondCode(204), want: passed},
		{
			name: "no service", service: &apiregistrationv1.ServiceReference{Namespace: "agg", Name: "none"},
			want: `False ServiceNotFound service/none in "agg" is not present`,
		},
		{
			name: "no namespace", service: &apiregistrationv1.ServiceReference{Namespace: "none", Name: "x"},
			want: `False ServiceNotFound service/x in "none" is not present`,
		},
		{
			name: "services cannot be read", errs: map[string]error{"services agg/ext": errors.New("broken")},
			want: `Unknown ServiceAccessError service/ext in "agg" cannot be checked due to: broken`,
		},
		{name: "another port", service: cip(8443), want: `False ServicePortError service/cip in "agg" is not listening on port <port>`},
		{name: "no endpoints", service: cip(443), want: `False EndpointsNotFound cannot find endpoints for service/cip in "agg"`},
		{
			name: "endpoints cannot be read", service: cip(443),
			errs: map[string]error{"endpoints agg/cip": errors.New("broken")},
			want: `Unknown EndpointsAccessError service/cip in "agg" cannot be checked due to: broken`,
		},
		{
			name: "endpoints without subsets", service: cip(443), endpoints: &corev1.Endpoints{},
			want: `False MissingEndpoints endpoints for service/cip in "agg" have no addresses with port name "https"`,
		},
		{
			name: "endpoints that are not ready", service: cip(443), endpoints: notReady,
			want: `False MissingEndpoints endpoints for service/cip in "agg" have no addresses with port name "https"`,
		},
		{
			name: "endpoints with another port", service: cip(443), endpoints: readyEndpoints("http"),
			want: `False MissingEndpoints endpoints for service/cip in "agg" have no addresses with port name "https"`,
		},
		{name: "endpoints that are ready", service: cip(443), endpoints: readyEndpoints("https"), want: "False FailedDiscoveryCheck failing or missing response from https://127.0.0.1:<port>/apis/ext.test/v1: " +
			`Get "https://127.0.0.1:<port>/apis/ext.test/v1": dial tcp 127.0.0.1:<port>: address not allowed`},
		{
			name:    "no endpoints of a typed service",
			service: &apiregistrationv1.ServiceReference{Namespace: "agg", Name: "typed"},
			want:    `False EndpointsNotFound cannot find endpoints for service/typed in "agg"`,
		},
		{name: "refused", service: &apiregistrationv1.ServiceReference{Namespace: "agg", Name: "ext", Port: &unreachable},
			want: failing + `Get "https://localhost:<port>/apis/ext.test/v1": dial tcp 127.0.0.1:<port>: connect: connection refused`},
		{name: "response 500", serve: respondCode(500), want: failing + "bad status from https://localhost:<port>/apis/ext.test/v1: 500"},
		{name: "response 404", serve: respondCode(404), want: failing + "bad status from https://localhost:<port>/apis/ext.test/v1: 404"},
		{name: "response 401", serve: respondCode(401), want: failing + "bad status from https://localhost:<port>/apis/ext.test/v1: 401"},
		{name: "response 301", serve: respondCode(301), want: failing + "bad status from https://localhost:<port>/apis/ext.test/v1: 301"},
	} {
		t.Run(c.name, c.run)
	}
}

// TestAvailabilityCheckTimesOut checks the condition for a server that does not respond.
func TestAvailabilityCheckTimesOut(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network) {
		hangs := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		c := checkCase{
			name:  "hangs",
			serve: hangs,
			want:  failing + `Get "https://localhost:<port>/apis/ext.test/v1": context deadline exceeded`,
		}
		c.check(t, n.extend, n.start)
	})
}

// run checks the case in parallel with others, over loopback connections.
func (c checkCase) run(t *testing.T) {
	t.Parallel()
	c.check(t, startExtension, start)
}

// check starts an extension server with extend and an aggregator with start, registers the server, and
// compares the condition of its APIService.
func (c checkCase) check(
	t *testing.T, extend func(*testing.T, tls.Certificate, http.HandlerFunc) *extension,
	start func(*testing.T, func(*fixture, *aggregation.Config)) *fixture,
) {
	authority := newAuthority(t)
	if c.serve == nil {
		c.serve = serveResources
	}
	// The availability check ignores the certificate, so one of an unknown CA serves here.
	server := extend(t, newAuthority(t).issue("another", x509.ExtKeyUsageServerAuth), c.serve)
	s := apiService(server.port, authority.pem)
	if c.service != nil {
		s.Spec.Service = c.service
	}
	agg := start(t, func(agg *fixture, _ *aggregation.Config) {
		if c.errs != nil {
			agg.errs = c.errs
		}
		if c.endpoints != nil {
			agg.endpoints["agg/cip"] = c.endpoints
		}
	})
	agg.board.put(name, s)
	port := server.port
	if p := s.Spec.Service.Port; p != nil {
		port = *p
	}
	got := func() string { return strings.ReplaceAll(agg.condition(name), fmt.Sprint(port), "<port>") }
	agg.eventually("a condition is written", func() bool { return got() != "" })
	if strings.ReplaceAll(got(), "[::1]", "127.0.0.1") != c.want {
		t.Errorf("got condition %s\nwant %s", got(), c.want)
	}
	const maxHanging = 2 // a second check may have started, but no check repeats a request that timed out
	if n := len(server.requests("/apis/ext.test/v1")); c.name == "hangs" && n > maxHanging {
		t.Errorf("got %d requests to a server that hangs, want at most %d", n, maxHanging)
	}
	w := agg.send(eve, httptest.NewRequest("GET", thingPath, nil))
	if available := strings.HasPrefix(c.want, "True"); !available && (w.Code != 503 || w.Body.String() != "service unavailable\n") {
		t.Errorf("while unavailable: got status %d: %q, want 503 and %q", w.Code, w.Body, "service unavailable\n")
	}
}

// TestChecksReportEachChangeOnce checks that a check whose result differs from the last one writes
// the condition, and that other checks write nothing.
func TestChecksReportEachChangeOnce(t *testing.T) { inBubble(t, checksReportEachChangeOnce) }

func checksReportEachChangeOnce(t *testing.T, n *network) {
	ca := newAuthority(t)
	server := n.extend(t, ca.issueServing(), serveResources)
	agg := n.start(t, nil)
	agg.register(server, ca.pem)
	server.handle(http.NotFound)
	agg.CheckAll()
	agg.eventually(
		"the server is unavailable",
		func() bool { return strings.HasPrefix(agg.condition(name), "False FailedDiscoveryCheck") },
	)
	first := agg.board.get(name).Status.Conditions[0]
	again := len(server.requests("/apis/ext.test/v1"))
	agg.eventually("the server is checked again", func() bool { return len(server.requests("/apis/ext.test/v1")) > again })
	if now := agg.board.get(name).Status.Conditions[0]; !reflect.DeepEqual(now, first) {
		t.Errorf("unchanged condition: got %v, want %v", now, first)
	}
	server.handle(serveResources)
	agg.eventually("the server is available", func() bool { return agg.condition(name) == passed })
	agg.mu.Lock()
	defer agg.mu.Unlock()
	if len(agg.written) != 3 {
		t.Errorf("wrote the conditions %v, want 3: available, unavailable, available", agg.written)
	}
	if got := sumMetric(t, agg, "aggregator_unavailable_apiservice_total"); got != 1 {
		t.Errorf("got aggregator_unavailable_apiservice_total %v, want 1", got)
	}
}
