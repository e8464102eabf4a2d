package aggregation_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
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

	"binnacle/services/apiserver/internal/api/aggregation"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
)

// eve is the user of proxied requests.
var eve = &request.User{
	Name:   "eve",
	UID:    "42",
	Groups: []string{"system:masters", "system:authenticated"},
	Extra:  map[string][]string{"some/scope": {"x y"}},
}

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

// TestRenewedCertificateIsUsedForNextRequest checks that a renewed client certificate is used for
// the next request, although availability checks keep the connection with the old certificate
// alive.
func TestRenewedCertificateIsUsedForNextRequest(t *testing.T) {
	inBubble(t, renewedCertificateIsUsedForNextRequest)
}

func renewedCertificateIsUsedForNextRequest(t *testing.T, n *network) {
	authority := newAuthority(t)
	server := n.extend(t, authority.issueServing(), serveResourcesAndEcho)
	var current atomic.Pointer[tls.Certificate]
	agg := n.start(t, func(_ *fixture, c *aggregation.Config) { c.Certificate = current.Load })
	agg.register(server, authority.pem)
	for i, name := range []string{"first", "second"} {
		issued := authority.issue(name, x509.ExtKeyUsageClientAuth)
		current.Store(&issued)
		if w := agg.send(eve, httptest.NewRequest("GET", thingPath, nil)); w.Code != http.StatusTeapot {
			t.Fatalf("with the %s certificate: got %d %s, want %d", name, w.Code, w.Body, http.StatusTeapot)
		}
		if c := server.requests(thingPath)[i].TLS.PeerCertificates; len(c) != 1 || c[0].Subject.CommonName != name {
			t.Errorf("request %d used the client certificates %v, want the %s one", i, c, name)
		}
	}
}

// TestProxiedRequestsCarryTheUser checks that a proxied request carries the user in header fields,
// and none of the client's credentials and identity headers.
func TestProxiedRequestsCarryTheUser(t *testing.T) { inBubble(t, proxiedRequestsCarryTheUser) }

func proxiedRequestsCarryTheUser(t *testing.T, n *network) {
	authority := newAuthority(t)
	server := n.extend(t, authority.issueServing(), serveResourcesAndEcho)
	client := authority.issue("front-proxy-client", x509.ExtKeyUsageClientAuth)
	agg := n.start(t, func(_ *fixture, c *aggregation.Config) { c.Certificate = func() *tls.Certificate { return &client } })
	agg.register(server, authority.pem)

	r := httptest.NewRequest("POST", thingPath+"?limit=5&labelSelector=a%3Db&x=%2F", strings.NewReader("body"))
	for name, value := range map[string]string{
		"Authorization": "Bearer secret",
		"X-Remote-User": "root", "X-Remote-Group": "system:masters", "X-Remote-Extra-A": "1", "X-Remote-Uid": "9",
		"Impersonate-User": "root", "Impersonate-Group": "g", "Impersonate-Uid": "1", "Impersonate-Extra-B": "c",
		"X-Own": "1", "Connection": "X-Hop", "X-Hop": "1", "Proxy-Authorization": "p", "Audit-Id": "forged",
	} {
		r.Header.Set(name, value)
	}
	responseRecorder := agg.send(eve, r)
	wantBody := "POST " + thingPath + "?labelSelector=a%3Db&limit=5&x=%2F body"
	if responseRecorder.Code != http.StatusTeapot || responseRecorder.Body.String() != wantBody || responseRecorder.Header().Get("X-Ext") != "yes" {
		t.Errorf("got %d %s with headers %v, want %d %s with X-Ext: yes", responseRecorder.Code, responseRecorder.Body, responseRecorder.Header(), http.StatusTeapot, wantBody)
	}
	for i, want := range [][]string{{"audit-1"}, nil, nil} {
		if got := responseRecorder.Header().Values(ownHeaders[i]); !reflect.DeepEqual(got, want) {
			t.Errorf("response header %s: got %q, want %q", ownHeaders[i], got, want)
		}
	}
	seen := server.requests(thingPath)[0]
	if c := seen.TLS.PeerCertificates; len(c) != 1 || c[0].Subject.CommonName != "front-proxy-client" {
		t.Errorf("got client certificates %v, want that of front-proxy-client", c)
	}
	want := http.Header{
		"X-Remote-User": {"eve"}, "X-Remote-Uid": {"42"}, "X-Remote-Group": {"system:masters", "system:authenticated"},
		"X-Remote-Extra-Some%2fscope": {"x y"}, "X-Own": {"1"}, "Audit-Id": {"audit-1"},
		"X-Forwarded-Host": {seen.Host}, "X-Forwarded-Proto": {"https"}, "X-Forwarded-Uri": {thingPath},
	}
	for name, values := range seen.Header {
		switch name {
		case "Accept-Encoding", "User-Agent", "Content-Length", "X-Forwarded-For":
		default:
			if !reflect.DeepEqual(values, want[name]) {
				t.Errorf("request header %s: got %q, want %q", name, values, want[name])
			}
			delete(want, name)
		}
	}
	if len(want) > 0 {
		t.Errorf("the proxied request lacks the headers %v", want)
	}
	if responseRecorder := agg.send(nil, httptest.NewRequest("GET", thingPath, nil)); responseRecorder.Code != http.StatusInternalServerError {
		t.Errorf("without a user: got %d, want 500", responseRecorder.Code)
	}
}

// startFront starts a server that proxies every request as eve.
func (agg *fixture) startFront() *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		agg.Handler(gv).ServeHTTP(w, r.WithContext(requesttest.WithUser(r.Context(), eve)))
	}))
	agg.t.Cleanup(server.Close)
	return server
}

// TestRedirectsAreRejectedUnlessAllowed checks that a redirect of an extension server is only
// passed on if the configuration permits it.
func TestRedirectsAreRejectedUnlessAllowed(t *testing.T) {
	inBubble(t, redirectsAreRejectedUnlessAllowed)
}

func redirectsAreRejectedUnlessAllowed(t *testing.T, n *network) {
	authority := newAuthority(t)
	server := n.extend(t, authority.issueServing(), func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/t") {
			w.Header().Set("Location", "/apis/ext.test/v1/elsewhere")
			w.WriteHeader(http.StatusFound)
			return
		}
		serveResources(w, r)
	})
	for _, test := range []struct {
		follow bool
		code   int
		body   string
	}{
		{follow: false, code: http.StatusBadGateway, body: "the backend attempted to redirect this request, which is not permitted"},
		{follow: true, code: http.StatusFound, body: ""},
	} {
		agg := n.start(t, func(_ *fixture, config *aggregation.Config) { config.FollowRedirects = test.follow })
		agg.register(server, authority.pem)
		if w := agg.send(eve, httptest.NewRequest("GET", thingPath, nil)); w.Code != test.code ||
			strings.TrimSpace(w.Body.String()) != test.body {
			t.Errorf("FollowRedirects %t: got %d %q, want %d %q", test.follow, w.Code, w.Body, test.code, test.body)
		}
	}
	if n := len(server.requests("/apis/ext.test/v1/elsewhere")); n != 0 {
		t.Errorf("a redirect was followed %d times, want 0", n)
	}
}

// TestUpgradesAreProxiedWithIdentity proxies requests that upgrade their connection, with the
// identity of the user.
func TestUpgradesAreProxiedWithIdentity(t *testing.T) {
	authority := newAuthority(t)
	server := startExtension(t, authority.issueServing(), func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/echo") && r.Header.Get("X-Remote-User") == "eve" && r.Header.Get("Authorization") == "":
			conn, readWriter, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			defer conn.Close()
			fmt.Fprint(readWriter, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: odd/1\r\n\r\n")
			_ = readWriter.Flush()
			_, _ = io.Copy(conn, readWriter)
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
	agg := start(t, nil)
	agg.register(server, authority.pem)
	front := agg.startFront()
	upgrade := func(path string) (*http.Response, net.Conn, *bufio.Reader) {
		conn, err := net.Dial("tcp", front.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		fmt.Fprintf(conn,
			"GET %s HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: odd/1\r\nAuthorization: Bearer x\r\nX-Remote-User: root\r\n\r\n",
			path)
		reader := bufio.NewReader(conn)
		resp, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		return resp, conn, reader
	}
	resp, conn, reader := upgrade("/apis/ext.test/v1/namespaces/n/things/echo")
	if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != "odd/1" {
		t.Fatalf("upgrade: got %d with headers %v, want %d with Upgrade: odd/1",
			resp.StatusCode, resp.Header, http.StatusSwitchingProtocols)
	}
	fmt.Fprint(conn, "hello\n")
	if line, err := reader.ReadString('\n'); line != "hello\n" {
		t.Errorf("after the upgrade, got echo %q, %v, want %q", line, err, "hello\n")
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

// TestProxyFailuresGetStatusAndReason checks the responses for failures of a server that accepts
// connections.
func TestProxyFailuresGetStatusAndReason(t *testing.T) {
	authority := newAuthority(t)
	serving := authority.issueServing()
	for _, test := range []struct {
		name string
		cert tls.Certificate
		ca   []byte
		code int
		body string
	}{
		{name: "aborted response", cert: serving, ca: authority.pem, code: 503, body: "error trying to reach service: stream error: stream ID"},
		{
			name: "no response in time", cert: serving, ca: authority.pem, code: 504,
			body: `{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the allotted timeout","reason":"Timeout","details":{},"code":504}`,
		},
		{
			name: "unknown authority", cert: newAuthority(t).issueServing(),
			ca: authority.pem, code: 503,
			body: "error trying to reach service: tls: failed to verify certificate: x509: certificate signed by unknown authority",
		},
		{
			name: "unknown authority, verification skipped",
			cert: newAuthority(t).issueServing(), ca: nil, code: 418,
			body: "GET",
		},
		{
			name: "certificate for another name", cert: authority.issue("wrong.example", x509.ExtKeyUsageServerAuth), ca: authority.pem,
			code: 503,
			body: "error trying to reach service: tls: failed to verify certificate: x509: certificate is valid for wrong.example, not ext.agg.svc",
		},
		{
			name: "invalid CA bundle", cert: serving, ca: []byte("nonsense"), code: 500,
			body: "unable to load root certificates: unable to parse bytes as PEM block",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel() // each waits for the first check of its server
			server := startExtension(t, test.cert, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case !strings.HasPrefix(r.URL.Path, "/apis/ext.test/v1/"):
				case test.name == "aborted response":
					panic(http.ErrAbortHandler)
				case test.name == "no response in time":
					<-r.Context().Done()
					return
				}
				serveResourcesAndEcho(w, r)
			})
			agg := start(t, nil)
			agg.register(server, test.ca)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			if test.name == "no response in time" {
				ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
			}
			defer cancel()
			w := agg.send(eve, httptest.NewRequest("GET", thingPath, nil).WithContext(ctx))
			if w.Code != test.code || !strings.HasPrefix(w.Body.String(), test.body) {
				t.Errorf("got %d %q, want %d and a body that begins with %q", w.Code, w.Body, test.code, test.body)
			}
		})
	}
}

// sumMetric returns the sum of all samples of a metric.
func sumMetric(t *testing.T, agg *fixture, name string) (sum float64) {
	t.Helper()
	all, err := agg.registry.Gather()
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

// TestLocalGroupVersionsAreNotDelegated checks that group versions of this server itself, with or
// without an APIService that names another server, are neither checked nor proxied.
func TestLocalGroupVersionsAreNotDelegated(t *testing.T) {
	inBubble(t, localGroupVersionsAreNotDelegated)
}

func localGroupVersionsAreNotDelegated(t *testing.T, n *network) {
	ca := newAuthority(t)
	server := n.extend(t, ca.issueServing(), serveResourcesAndEcho)
	agg := n.start(t, func(agg *fixture, _ *aggregation.Config) { agg.local[gv] = true })
	agg.board.put(name, apiService(server.port, ca.pem))
	local := apiService(server.port, nil)
	local.Name, local.Spec.Version, local.Spec.Service = "v2.ext.test", "v2", nil
	agg.board.put("v2.ext.test", local)
	agg.waitForRegistered(2)
	agg.waitForPass()
	if n := len(server.requests("/apis/ext.test/v1")); n != 0 {
		t.Errorf("got %d availability checks of a local group version, want 0", n)
	}
	withoutServer := gv
	withoutServer.Version = "v2"
	if agg.Handler(gv) != nil || agg.Handler(withoutServer) != nil {
		t.Error("local group versions: got a handler that proxies, want none")
	}
	if got := agg.Versions(); len(got) != 0 {
		t.Errorf("local group versions: got delegated versions %v, want none", got)
	}
	agg.mu.Lock()
	agg.local[gv] = false
	agg.mu.Unlock()
	agg.eventually("the server is available", func() bool { return agg.condition(name) == passed })
	if w := agg.send(eve, httptest.NewRequest("GET", thingPath, nil)); w.Code != http.StatusTeapot {
		t.Errorf("group version that is no longer local: got %d %s, want %d", w.Code, w.Body, http.StatusTeapot)
	}
}

// TestConnectionsAreClosedOnDeletionAndShutdown checks that connections are closed when the
// APIService is deleted and at shutdown.
func TestConnectionsAreClosedOnDeletionAndShutdown(t *testing.T) {
	inBubble(t, connectionsAreClosedOnDeletionAndShutdown)
}

func connectionsAreClosedOnDeletionAndShutdown(t *testing.T, n *network) {
	authority := newAuthority(t)
	server := n.extend(t, authority.issueServing(), serveResourcesAndEcho)
	agg := n.start(t, nil)
	agg.register(server, authority.pem)
	for range 2 {
		agg.send(eve, httptest.NewRequest("GET", thingPath, nil))
		if server.openConnections() == 0 {
			t.Fatal("no idle connection, want one")
		}
		agg.board.put(name, nil)
		agg.eventually("the group version has no handler", func() bool { return agg.Handler(gv) == nil })
		agg.eventually("all connections are closed", func() bool { return server.openConnections() == 0 })
		agg.register(server, authority.pem)
	}
	agg.stop()
	agg.eventually("shutdown closed all connections", func() bool { return server.openConnections() == 0 })
}
