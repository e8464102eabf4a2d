package aggregation_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/api/aggregation"
	apiregistrationv1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
)

var eve = &request.User{Name: "eve", UID: "42", Groups: []string{"system:masters", "system:authenticated"}, Extra: map[string][]string{"some/scope": {"x y"}}}

// thingPath is the path of an object of the extension servers.
const thingPath = "/apis/ext.test/v1/namespaces/n/things/t"

// ownHeaders are response headers that only this server may set.
var ownHeaders = []string{"Audit-Id", "X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid"}

// serveResourcesAndEcho serves the resources of the group version and echoes requests for objects.
func serveResourcesAndEcho(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.URL.Path, "/apis/ext.test/v1/") {
		serveResources(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("X-Ext", "yes")
	for _, name := range ownHeaders {
		w.Header().Set(name, "mine")
	}
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(http.StatusTeapot)
	fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.RequestURI(), body)
}

// TestRenewedCertificates checks that a renewed client certificate is used for the next request,
// although availability checks keep the connection with the old certificate alive.
func TestRenewedCertificates(t *testing.T) {
	ca := newAuthority(t)
	e := startExtension(t, ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth), serveResourcesAndEcho)
	var now atomic.Pointer[tls.Certificate]
	b := start(t, func(_ *fixture, c *aggregation.Config) { c.Certificate = now.Load })
	b.register(e, ca.pem)
	for i, name := range []string{"first", "second"} {
		next := ca.issue(name, x509.ExtKeyUsageClientAuth)
		now.Store(&next)
		if w := b.send(eve, httptest.NewRequest("GET", thingPath, nil)); w.Code != http.StatusTeapot {
			t.Fatalf("got %d %s, want %v", w.Code, w.Body, http.StatusTeapot)
		}
		if c := e.requests(thingPath)[i].TLS.PeerCertificates; len(c) != 1 || c[0].Subject.CommonName != name {
			t.Errorf("shown certificates %v, want that of %s", c, name)
		}
	}
}

func TestProxiedRequestsCarryTheUser(t *testing.T) {
	ca := newAuthority(t)
	e := startExtension(t, ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth), serveResourcesAndEcho)
	client := ca.issue("front-proxy-client", x509.ExtKeyUsageClientAuth)
	b := start(t, func(_ *fixture, c *aggregation.Config) { c.Certificate = func() *tls.Certificate { return &client } })
	b.register(e, ca.pem)

	r := httptest.NewRequest("POST", thingPath+"?limit=5&labelSelector=a%3Db&x=%2F", strings.NewReader("body"))
	for name, value := range map[string]string{
		"Authorization": "Bearer secret", "X-Remote-User": "root", "X-Remote-Group": "system:masters", "X-Remote-Extra-A": "1", "X-Remote-Uid": "9",
		"Impersonate-User": "root", "Impersonate-Group": "g", "Impersonate-Uid": "1", "Impersonate-Extra-B": "c",
		"X-Own": "1", "Connection": "X-Hop", "X-Hop": "1", "Proxy-Authorization": "p", "Audit-Id": "theirs",
	} {
		r.Header.Set(name, value)
	}
	w := b.send(eve, r)
	if w.Code != http.StatusTeapot || w.Body.String() != "POST "+thingPath+"?labelSelector=a%3Db&limit=5&x=%2F body" || w.Header().Get("X-Ext") != "yes" {
		t.Errorf("got %d %s %v, want %v", w.Code, w.Body, w.Header(), http.StatusTeapot)
	}
	for i, want := range [][]string{{"audit-1"}, nil, nil} {
		if got := w.Header().Values(ownHeaders[i]); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %q, want %q", ownHeaders[i], got, want)
		}
	}
	seen := e.requests(thingPath)[0]
	if c := seen.TLS.PeerCertificates; len(c) != 1 || c[0].Subject.CommonName != "front-proxy-client" {
		t.Errorf("got client certificates %v, want that of front-proxy-client", c)
	}
	want := http.Header{
		"X-Remote-User": {"eve"}, "X-Remote-Uid": {"42"}, "X-Remote-Group": {"system:masters", "system:authenticated"}, "X-Remote-Extra-Some%2fscope": {"x y"},
		"X-Own": {"1"}, "Audit-Id": {"audit-1"}, "X-Forwarded-Host": {seen.Host}, "X-Forwarded-Proto": {"https"}, "X-Forwarded-Uri": {thingPath},
	}
	for name, values := range seen.Header {
		switch name {
		case "Accept-Encoding", "User-Agent", "Content-Length", "X-Forwarded-For":
		default:
			if !reflect.DeepEqual(values, want[name]) {
				t.Errorf("%s: got %q, want %q", name, values, want[name])
			}
			delete(want, name)
		}
	}
	if len(want) > 0 {
		t.Errorf("missing %v", want)
	}
	if w := b.send(nil, httptest.NewRequest("GET", thingPath, nil)); w.Code != http.StatusInternalServerError {
		t.Errorf("without a user: got %d, want 500", w.Code)
	}
}

// front starts a server that proxies every request as eve.
func (b *fixture) front() *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.Handler(gv).ServeHTTP(w, r.WithContext(requesttest.WithUser(r.Context(), eve)))
	}))
	b.t.Cleanup(s.Close)
	return s
}

// TestRedirectsAreRejectedUnlessAllowed checks that a redirect of an extension server is only
// passed on if the configuration permits it.
func TestRedirectsAreRejectedUnlessAllowed(t *testing.T) {
	ca := newAuthority(t)
	e := startExtension(t, ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth), func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/t") {
			w.Header().Set("Location", "/apis/ext.test/v1/elsewhere")
			w.WriteHeader(http.StatusFound)
			return
		}
		serveResources(w, r)
	})
	for _, c := range []struct {
		follow bool
		code   int
		body   string
	}{
		{follow: false, code: http.StatusBadGateway, body: "the backend attempted to redirect this request, which is not permitted"},
		{follow: true, code: http.StatusFound, body: ""},
	} {
		b := start(t, func(_ *fixture, config *aggregation.Config) { config.FollowRedirects = c.follow })
		b.register(e, ca.pem)
		if w := b.send(eve, httptest.NewRequest("GET", thingPath, nil)); w.Code != c.code || strings.TrimSpace(w.Body.String()) != c.body {
			t.Errorf("follow %v: %d %q, want %v", c.follow, w.Code, w.Body, c.code)
		}
	}
	if n := len(e.requests("/apis/ext.test/v1/elsewhere")); n != 0 {
		t.Errorf("a redirect was followed %d times, want 0", n)
	}
}

// TestUpgradesAreProxiedWithIdentity proxies requests that upgrade their connection, with the
// identity of the user.
func TestUpgradesAreProxiedWithIdentity(t *testing.T) {
	ca := newAuthority(t)
	e := startExtension(t, ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth), func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/echo") && r.Header.Get("X-Remote-User") == "eve" && r.Header.Get("Authorization") == "":
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			defer conn.Close()
			fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: odd/1\r\n\r\n")
			_ = rw.Flush()
			_, _ = io.Copy(conn, rw)
		case strings.HasSuffix(r.URL.Path, "/redirect"):
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		case strings.HasSuffix(r.URL.Path, "/teapot"):
			for _, name := range ownHeaders {
				w.Header().Set(name, "mine")
			}
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, "short and stout")
		default:
			serveResources(w, r)
		}
	})
	b := start(t, nil)
	b.register(e, ca.pem)
	s := b.front()
	upgrade := func(path string) (*http.Response, net.Conn, *bufio.Reader) {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: odd/1\r\nAuthorization: Bearer x\r\nX-Remote-User: root\r\n\r\n", path)
		rd := bufio.NewReader(conn)
		resp, err := http.ReadResponse(rd, nil)
		if err != nil {
			t.Fatal(err)
		}
		return resp, conn, rd
	}
	resp, conn, rd := upgrade("/apis/ext.test/v1/namespaces/n/things/echo")
	if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != "odd/1" {
		t.Fatalf("got %d %v, want %v", resp.StatusCode, resp.Header, http.StatusSwitchingProtocols)
	}
	fmt.Fprint(conn, "hello\n")
	if line, err := rd.ReadString('\n'); line != "hello\n" {
		t.Errorf("got %q, %v, want %q", line, err, "hello\n")
	}
	for path, want := range map[string]string{"redirect": "503 invalid upgrade response: status code 302", "teapot": "418 short and stout"} {
		resp, _, _ := upgrade("/apis/ext.test/v1/namespaces/n/things/" + path)
		body, _ := io.ReadAll(resp.Body)
		if got := fmt.Sprintf("%d %s", resp.StatusCode, strings.TrimSpace(string(body))); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
		for _, name := range ownHeaders {
			if resp.Header.Get(name) == "mine" {
				t.Errorf("%s: got header %s of the extension server, want it dropped", path, name)
			}
		}
	}
}

// TestProxyErrors covers failures of a server that accepts connections.
func TestProxyErrors(t *testing.T) {
	ca := newAuthority(t)
	serving := ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth)
	for _, c := range []struct {
		what string
		cert tls.Certificate
		ca   []byte
		code int
		body string
	}{
		{what: "cut", cert: serving, ca: ca.pem, code: 503, body: "error trying to reach service: stream error: stream ID"},
		{
			what: "late", cert: serving, ca: ca.pem, code: 504,
			body: `{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the allotted timeout","reason":"Timeout","details":{},"code":504}`,
		},
		{
			what: "unknown authority", cert: newAuthority(t).issue("ext.agg.svc", x509.ExtKeyUsageServerAuth),
			ca: ca.pem, code: 503,
			body: "error trying to reach service: tls: failed to verify certificate: x509: certificate signed by unknown authority",
		},
		{
			what: "unknown authority, not looked at",
			cert: newAuthority(t).issue("ext.agg.svc", x509.ExtKeyUsageServerAuth), ca: nil, code: 418,
			body: "GET",
		},
		{
			what: "another name", cert: ca.issue("wrong.example", x509.ExtKeyUsageServerAuth), ca: ca.pem,
			code: 503,
			body: "error trying to reach service: tls: failed to verify certificate: x509: certificate is valid for wrong.example, not ext.agg.svc",
		},
		{
			what: "no bundle", cert: serving, ca: []byte("nonsense"), code: 500,
			body: "unable to load root certificates: unable to parse bytes as PEM block",
		},
	} {
		t.Run(c.what, func(t *testing.T) {
			e := startExtension(t, c.cert, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case !strings.HasPrefix(r.URL.Path, "/apis/ext.test/v1/"):
				case c.what == "cut":
					panic(http.ErrAbortHandler)
				case c.what == "late":
					<-r.Context().Done()
					return
				}
				serveResourcesAndEcho(w, r)
			})
			b := start(t, nil)
			b.register(e, c.ca)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			if c.what == "late" {
				ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
			}
			defer cancel()
			w := b.send(eve, httptest.NewRequest("GET", thingPath, nil).WithContext(ctx))
			if w.Code != c.code || !strings.HasPrefix(w.Body.String(), c.body) {
				t.Errorf("got %d %q, want %d %q", w.Code, w.Body, c.code, c.body)
			}
		})
	}
}

func ready(port string) *corev1.Endpoints {
	return &corev1.Endpoints{Subsets: []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "10.1.1.1"}}, Ports: []corev1.EndpointPort{{Name: port, Port: 8443}}}}}
}

// checked is a test case of the availability check.
type checked struct {
	what      string
	service   *apiregistrationv1.ServiceReference
	endpoints *corev1.Endpoints
	errs      map[string]error
	serve     http.HandlerFunc
	want      string
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
	waiting := ready("https")
	waiting.Subsets[0].NotReadyAddresses, waiting.Subsets[0].Addresses = waiting.Subsets[0].Addresses, nil
	code := func(n int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Location", "/"); w.WriteHeader(n) }
	}
	cip := func(port int32) *apiregistrationv1.ServiceReference {
		return &apiregistrationv1.ServiceReference{Namespace: "agg", Name: "cip", Port: &port}
	}
	for _, c := range []checked{
		{what: "works", want: passed},
		{what: "no content", serve: code(204), want: passed},
		{
			what: "no service", service: &apiregistrationv1.ServiceReference{Namespace: "agg", Name: "none"},
			want: `False ServiceNotFound service/none in "agg" is not present`,
		},
		{
			what: "no namespace", service: &apiregistrationv1.ServiceReference{Namespace: "none", Name: "x"},
			want: `False ServiceNotFound service/x in "none" is not present`,
		},
		{
			what: "services cannot be read", errs: map[string]error{"services agg/ext": errors.New("broken")},
			want: `Unknown ServiceAccessError service/ext in "agg" cannot be checked due to: broken`,
		},
		{what: "another port", service: cip(8443), want: `False ServicePortError service/cip in "agg" is not listening on port <port>`},
		{what: "no endpoints", service: cip(443), want: `False EndpointsNotFound cannot find endpoints for service/cip in "agg"`},
		{
			what: "endpoints cannot be read", service: cip(443),
			errs: map[string]error{"endpoints agg/cip": errors.New("broken")},
			want: `Unknown EndpointsAccessError service/cip in "agg" cannot be checked due to: broken`,
		},
		{
			what: "endpoints without subsets", service: cip(443), endpoints: &corev1.Endpoints{},
			want: `False MissingEndpoints endpoints for service/cip in "agg" have no addresses with port name "https"`,
		},
		{
			what: "endpoints that are not ready", service: cip(443), endpoints: waiting,
			want: `False MissingEndpoints endpoints for service/cip in "agg" have no addresses with port name "https"`,
		},
		{
			what: "endpoints with another port", service: cip(443), endpoints: ready("http"),
			want: `False MissingEndpoints endpoints for service/cip in "agg" have no addresses with port name "https"`,
		},
		{what: "endpoints that are ready", service: cip(443), endpoints: ready("https"), want: "False FailedDiscoveryCheck failing or missing response from https://127.0.0.1:<port>/apis/ext.test/v1: " +
			`Get "https://127.0.0.1:<port>/apis/ext.test/v1": dial tcp 127.0.0.1:<port>: address not allowed`},
		{
			what:    "no endpoints of a typed service",
			service: &apiregistrationv1.ServiceReference{Namespace: "agg", Name: "typed"},
			want:    `False EndpointsNotFound cannot find endpoints for service/typed in "agg"`,
		},
		{what: "refused", service: &apiregistrationv1.ServiceReference{Namespace: "agg", Name: "ext", Port: &unreachable},
			want: failing + `Get "https://localhost:<port>/apis/ext.test/v1": dial tcp 127.0.0.1:<port>: connect: connection refused`},
		{what: "500", serve: code(500), want: failing + "bad status from https://localhost:<port>/apis/ext.test/v1: 500"},
		{what: "404", serve: code(404), want: failing + "bad status from https://localhost:<port>/apis/ext.test/v1: 404"},
		{what: "401", serve: code(401), want: failing + "bad status from https://localhost:<port>/apis/ext.test/v1: 401"},
		{what: "301", serve: code(301), want: failing + "bad status from https://localhost:<port>/apis/ext.test/v1: 301"},
	} {
		t.Run(c.what, c.run)
	}
}

func TestAvailabilityCheckTimesOut(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network) {
		hangs := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		c := checked{serve: hangs, want: failing + `Get "https://localhost:<port>/apis/ext.test/v1": context deadline exceeded`}
		c.check(t, n.extend, n.start)
	})
}

func (c checked) run(t *testing.T) {
	t.Parallel()
	c.check(t, startExtension, start)
}

func (c checked) check(t *testing.T, extend func(*testing.T, tls.Certificate, http.HandlerFunc) *extension, start func(*testing.T, func(*fixture, *aggregation.Config)) *fixture) {
	ca := newAuthority(t)
	if c.serve == nil {
		c.serve = serveResources
	}
	// The availability check ignores the certificate.
	e := extend(t, newAuthority(t).issue("another", x509.ExtKeyUsageServerAuth), c.serve)
	s := apiService(e.port, ca.pem)
	if c.service != nil {
		s.Spec.Service = c.service
	}
	b := start(t, func(b *fixture, _ *aggregation.Config) {
		if c.errs != nil {
			b.errs = c.errs
		}
		if c.endpoints != nil {
			b.endpoints["agg/cip"] = c.endpoints
		}
	})
	b.board.put(name, s)
	port := e.port
	if p := s.Spec.Service.Port; p != nil {
		port = *p
	}
	got := func() string { return strings.ReplaceAll(b.condition(name), fmt.Sprint(port), "<port>") }
	b.eventually("a condition is written", func() bool { return got() != "" })
	if strings.ReplaceAll(got(), "[::1]", "127.0.0.1") != c.want {
		t.Errorf("got %s\nwant %s", got(), c.want)
	}
	if n := len(e.requests("/apis/ext.test/v1")); c.what == "hangs" && n > 2 { // a second check may have started
		t.Errorf("got %d requests, want at most 2", n)
	}
	w := b.send(eve, httptest.NewRequest("GET", thingPath, nil))
	if available := strings.HasPrefix(c.want, "True"); !available && (w.Code != 503 || w.Body.String() != "service unavailable\n") {
		t.Errorf("while unavailable: got status %d: %q, want 503 and %q", w.Code, w.Body, "service unavailable\n")
	}
}

// TestChecksReportEachChangeOnce checks that a changed result is reported, an unchanged one is not.
func TestChecksReportEachChangeOnce(t *testing.T) { inBubble(t, checksReportEachChangeOnce) }

func checksReportEachChangeOnce(t *testing.T, n *network) {
	ca := newAuthority(t)
	e := n.extend(t, ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth), serveResources)
	b := n.start(t, nil)
	b.register(e, ca.pem)
	e.handle(http.NotFound)
	b.CheckAll()
	b.eventually("the server is unavailable", func() bool { return strings.HasPrefix(b.condition(name), "False FailedDiscoveryCheck") })
	first := b.board.get(name).Status.Conditions[0]
	again := len(e.requests("/apis/ext.test/v1"))
	b.eventually("the server is checked again", func() bool { return len(e.requests("/apis/ext.test/v1")) > again })
	if now := b.board.get(name).Status.Conditions[0]; !reflect.DeepEqual(now, first) {
		t.Errorf("unchanged condition: got %v, want %v", now, first)
	}
	e.handle(serveResources)
	b.eventually("the server is available", func() bool { return b.condition(name) == passed })
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.written) != 3 {
		t.Errorf("got conditions %v, want 3", b.written)
	}
	if got := metrics(t, b, "aggregator_unavailable_apiservice_total"); got != 1 {
		t.Errorf("got aggregator_unavailable_apiservice_total %v, want 1", got)
	}
}

func metrics(t *testing.T, b *fixture, name string) (sum float64) {
	t.Helper()
	all, err := b.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func TestLocalGroupVersionsAreNotDelegated(t *testing.T) {
	ca := newAuthority(t)
	e := startExtension(t, ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth), serveResourcesAndEcho)
	b := start(t, func(b *fixture, _ *aggregation.Config) { b.local[gv] = true })
	b.board.put(name, apiService(e.port, ca.pem))
	local := apiService(e.port, nil)
	local.Name, local.Spec.Version, local.Spec.Service = "v2.ext.test", "v2", nil
	b.board.put("v2.ext.test", local)
	b.waitForRegistered(2)
	b.waitForPass()
	if n := len(e.requests("/apis/ext.test/v1")); n != 0 {
		t.Errorf("got %d availability checks of a local group version, want 0", n)
	}
	theirs := gv
	theirs.Version = "v2"
	if b.Handler(gv) != nil || b.Handler(theirs) != nil {
		t.Error("local group versions: got a handler that proxies, want none")
	}
	if got := b.Versions(); len(got) != 0 {
		t.Errorf("local group versions: got delegated versions %v, want none", got)
	}
	b.mu.Lock()
	b.local[gv] = false
	b.mu.Unlock()
	b.eventually("the server is available", func() bool { return b.condition(name) == passed })
	if w := b.send(eve, httptest.NewRequest("GET", thingPath, nil)); w.Code != http.StatusTeapot {
		t.Errorf("got %d %s, want %v", w.Code, w.Body, http.StatusTeapot)
	}
}

// TestConnectionsAreClosed checks that connections are closed when the APIService is deleted and at
// shutdown.
func TestConnectionsAreClosed(t *testing.T) {
	ca := newAuthority(t)
	e := startExtension(t, ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth), serveResourcesAndEcho)
	b := start(t, nil)
	b.register(e, ca.pem)
	for range 2 {
		b.send(eve, httptest.NewRequest("GET", thingPath, nil))
		if e.openConnections() == 0 {
			t.Fatal("no idle connection, want one")
		}
		b.board.put(name, nil)
		b.eventually("the group version has no handler", func() bool { return b.Handler(gv) == nil })
		b.eventually("all connections are closed", func() bool { return e.openConnections() == 0 })
		b.register(e, ca.pem)
	}
	b.stop()
	b.eventually("shutdown closed all connections", func() bool { return e.openConnections() == 0 })
}
