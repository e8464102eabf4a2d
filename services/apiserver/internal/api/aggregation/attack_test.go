package aggregation_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/api/aggregation"
)

// identityHeaders are the headers in which this server sends the identity of eve.
var identityHeaders = []string{"X-Remote-User", "X-Remote-Uid", "X-Remote-Group", "X-Remote-Extra-Some%2fscope"}

// TestClientsCannotForgeIdentity checks that all identity headers of a proxied request come from this
// server, regardless of how a client spells its own headers.
func TestClientsCannotForgeIdentity(t *testing.T) {
	ca := newAuthority(t)
	server := startExtension(t, ca.issueServing(), serveResourcesAndEcho)
	agg := start(t, nil)
	agg.register(server, ca.pem)
	s := agg.startFront()
	for i, headers := range []string{
		"X-Remote-User: root\r\nX-Remote-Group: system:masters\r\nX-Remote-Extra-a: b\r\nX-Remote-Uid: 0\r\n",
		"x-remote-user: root\r\nX-REMOTE-GROUP: system:masters\r\nx-remote-extra-A%2fb: b\r\n",
		"X_Remote_User: root\r\nx_remote_group: system:masters\r\nX-Remote_Extra-a: b\r\n",
		"Authorization: Bearer x\r\nImpersonate-User: root\r\nimpersonate_group: system:masters\r\nImpersonate-Extra-a: b\r\n",
		"Connection: X-Remote-User, X-Remote-Group\r\n",
	} {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		path := fmt.Sprintf("/apis/ext.test/v1/attack%d", i)
		fmt.Fprintf(conn,
			"POST %s HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: X-Remote-User, X-Remote-Group\r\n%s\r\n1\r\na\r\n0\r\nX-Remote-User: root\r\nX-Remote-Group: system:masters\r\n\r\n",
			path, headers)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != http.StatusTeapot {
			t.Fatalf("%q: got response %v, %v, want status %d", headers, resp, err, http.StatusTeapot)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		conn.Close()
		seen := server.requests(path)[0]
		for name, values := range seen.Header {
			// Some servers treat "_" like "-" in names of headers.
			plain := strings.ReplaceAll(strings.ToLower(name), "_", "-")
			isCredential := plain == "authorization" || strings.HasPrefix(plain, "impersonate")
			isForged := strings.HasPrefix(plain, "x-remote-") && !slices.Contains(identityHeaders, name)
			if strings.Contains(strings.Join(values, ","), "root") || isCredential || isForged {
				t.Errorf("%q: extension server received header %s: %q, want none of an identity", headers, name, values)
			}
		}
		if seen.Header.Get("X-Remote-User") != "eve" || len(seen.Header.Values("X-Remote-Group")) != 2 || len(seen.Trailer) > 0 {
			t.Errorf("%q: extension server received headers %v, trailers %v, want user eve with 2 groups, no trailers",
				headers, seen.Header, seen.Trailer)
		}
	}
}

// TestUpgradesRemoveConnectionHeaders checks that a client cannot use the Connection header to make
// a proxy drop the identity headers that this server sets.
func TestUpgradesRemoveConnectionHeaders(t *testing.T) { inBubble(t, upgradesRemoveConnectionHeaders) }

func upgradesRemoveConnectionHeaders(t *testing.T, n *network) {
	ca := newAuthority(t)
	server := n.extend(t, ca.issueServing(), serveResourcesAndEcho)
	agg := n.start(t, nil)
	agg.register(server, ca.pem)
	r := httptest.NewRequest("GET", thingPath, nil)
	r.Header["Connection"] = []string{"x-remote-user, Upgrade", "X-Remote-Group"}
	r.Header.Set("Upgrade", "odd/1")
	agg.send(eve, r)
	seen := server.requests(thingPath)
	if len(seen) != 1 || seen[0].Header.Get("X-Remote-User") != "eve" || seen[0].Header.Get("Upgrade") != "odd/1" {
		t.Fatalf("got requests %+v, want one as eve with Upgrade odd/1", seen)
	}
	if got := seen[0].Header.Values("Connection"); len(got) != 1 || got[0] != "Upgrade" {
		t.Errorf("got Connection %q, want Upgrade", got)
	}
}

// TestLocalAddressesAreRejected checks that an address that only this machine reaches is never
// dialed.
func TestLocalAddressesAreRejected(t *testing.T) { inBubble(t, localAddressesAreRejected) }

func localAddressesAreRejected(t *testing.T, _ *network) {
	const want = "address not allowed"
	for _, address := range []string{
		"127.0.0.1", "::1", "169.254.169.254", "fe80::1", "0.0.0.0", "224.0.0.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254",
	} {
		agg := start(t, func(agg *fixture, config *aggregation.Config) {
			agg.services["agg/ext"] = &corev1.Service{
				Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "irrelevant"},
			}
			config.Resolve = func(context.Context, string, string, int32) (string, error) {
				return net.JoinHostPort(address, "443"), nil
			}
		})
		agg.board.put(name, apiService(443, nil))
		agg.eventually("a condition is written", func() bool { return agg.condition(name) != "" })
		if got := agg.condition(name); !strings.HasSuffix(got, want) {
			t.Errorf("%s: got condition %s, want it to end with %s", address, got, want)
		}
		agg.stop()
	}
}

// TestNamesMayResolveToLoopback checks that a host name may resolve to loopback, but to no other
// address that only this machine reaches.
func TestNamesMayResolveToLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1": true, "::1": true, "::ffff:127.0.0.1": true, "10.0.0.1": true, "2001:db8::1": true,
		"169.254.169.254": false, "::ffff:169.254.169.254": false, "fe80::1": false, "0.0.0.0": false, "::": false,
		"224.0.0.1": false, "ff02::1": false,
	} {
		const isName = true
		if got := aggregation.Allowed(netip.MustParseAddr(address), isName); got != want {
			t.Errorf("Allowed(%s) for a name = %v, want %v", address, got, want)
		}
	}
}

// TestLocalAddressesAreRejectedForProxies checks that an address that only the proxy's machine
// reaches is not dialed through the proxy. The proxy resolves names itself.
func TestLocalAddressesAreRejectedForProxies(t *testing.T) {
	inBubble(t, localAddressesAreRejectedForProxies)
}

func localAddressesAreRejectedForProxies(t *testing.T, n *network) {
	for address, allowed := range map[string]bool{
		"127.0.0.1":              false,
		"::1":                    false,
		"169.254.169.254":        false,
		"fe80::1":                false,
		"0.0.0.0":                false,
		"::ffff:169.254.169.254": false,
		"10.0.0.1":               true,
		"2001:db8::1":            true,
		"ext.agg.svc":            true,
	} {
		var dialed atomic.Value
		agg := n.start(t, func(_ *fixture, config *aggregation.Config) {
			config.Resolve = func(context.Context, string, string, int32) (string, error) {
				return net.JoinHostPort(address, "443"), nil
			}
			config.Dial = func(_ context.Context, _, addr string) (net.Conn, error) {
				dialed.Store(addr)
				return nil, errors.New("proxy unavailable")
			}
		})
		agg.board.put(name, apiService(443, nil))
		agg.eventually("a condition is written", func() bool { return agg.condition(name) != "" })
		want := "address not allowed"
		if allowed {
			want = "proxy unavailable"
		}
		if got := agg.condition(name); !strings.HasSuffix(got, want) || (dialed.Load() != nil) != allowed {
			t.Errorf("%s: got condition %s, dialed %v, want %s, dialed: %t", address, got, dialed.Load(), want, allowed)
		}
		agg.stop()
	}
}

// TestUnboundedResponsesAreCut checks that neither headers nor documents of a server are read
// without a bound.
func TestUnboundedResponsesAreCut(t *testing.T) { inBubble(t, unboundedResponsesAreCut) }

func unboundedResponsesAreCut(t *testing.T, n *network) {
	authority := newAuthority(t)
	server := n.extend(t, authority.issueServing(), func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/apis":
			w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat(" ", 1<<16)); err != nil {
					return
				}
			}
		case r.Header.Get("Upgrade") != "":
			conn, readWriter, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			defer conn.Close()
			fmt.Fprint(readWriter, "HTTP/1.1 101 Switching Protocols\r\n")
			for err == nil {
				_, err = fmt.Fprintf(readWriter, "X: %s\r\n", strings.Repeat("x", 1<<12))
			}
		case strings.HasPrefix(r.URL.Path, "/apis/ext.test/v1/"):
			for i := range 2000 {
				w.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", 1<<10))
			}
		default:
			serveResources(w, r)
		}
	})
	agg := n.start(t, nil)
	agg.register(server, authority.pem)
	agg.eventually("the index is requested", func() bool { return len(server.requests("/openapi/v3")) > 0 })
	if got := agg.discovered(); got != "stale" {
		t.Errorf("got discovery %q, want stale", got)
	}
	if w := agg.send(eve, httptest.NewRequest("GET", thingPath, nil)); w.Code != 503 || len(w.Header()) > 10 {
		t.Errorf("unbounded headers: got %d, %d headers, want 503", w.Code, len(w.Header()))
	}
	r := httptest.NewRequest("GET", thingPath, nil)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "odd/1")
	if w := agg.send(eve, r); w.Code != 503 || w.Body.String() != "the response headers are too long\n" {
		t.Errorf("unbounded headers of an upgrade: got %d %s, want 503", w.Code, w.Body)
	}
}

// TestConditionQuotesLittleOfAResponse checks that a server that answers with a long text that is
// not HTTP does not fill its APIService.
func TestConditionQuotesLittleOfAResponse(t *testing.T) {
	authority := newAuthority(t)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{authority.issueServing()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					_, _ = io.WriteString(conn, strings.Repeat("x", 10_000)+"\r\n\r\n")
				}
			}()
		}
	}()
	agg := start(t, nil)
	agg.board.put(name, apiService(int32(listener.Addr().(*net.TCPAddr).Port), authority.pem))
	agg.eventually("a condition is written", func() bool { return agg.condition(name) != "" })
	if got := agg.condition(name); len(got) > 5000 || !strings.Contains(got, `malformed HTTP response "xxx`) {
		t.Errorf("got a condition of %d bytes: %.300s, want at most 5000 bytes that quote the response", len(got), got)
	}
}

// TestExpandingDocumentsAreRejected checks that a document whose decoded form is far larger than
// its text is not decoded. Documents of other servers stay available.
func TestExpandingDocumentsAreRejected(t *testing.T) { inBubble(t, expandingDocumentsAreRejected) }

func expandingDocumentsAreRejected(t *testing.T, n *network) {
	authority := newAuthority(t)
	many := strings.Repeat("{},", 1<<18) // more values than the limit, in less bytes than the limit
	server := n.extend(t, authority.issueServing(), func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/apis":
			w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
			_, _ = io.WriteString(
				w,
				`{"items":[{"metadata":{"name":"ext.test"},"versions":[{"version":"v1","resources":[`+many+`{}]}]}]}`,
			)
		case "/apis/ext.test/v1":
			_, _ = io.WriteString(w, `{"resources":[`+many+`{}]}`)
		case "/openapi/v2":
			_, _ = io.WriteString(
				w,
				`{"swagger":"2.0","info":{"title":"x","version":"x"},"paths":{"/apis/ext.test/v1/x":{"parameters":[`+many+`{}]}}}`,
			)
		case "/openapi/v3":
			_, _ = io.WriteString(w, `{"paths":{"apis/ext.test/v1":{"serverRelativeURL":"/x?hash=1"}},"more":[`+many+`{}]}`)
		}
	})
	agg := n.start(t, nil)
	agg.register(server, authority.pem)
	agg.eventually("the server is requested", func() bool { return len(server.requests("/openapi/v3")) > 0 })
	if all := agg.Versions(); len(all) != 1 || !all[0].Stale || len(all[0].Resources) != 0 {
		t.Errorf("got %d versions %.300s, want one, stale and without resources", len(all), fmt.Sprint(all))
	}
	if all := agg.Swaggers(t.Context()); len(all) != 0 {
		t.Errorf("got a v2 document of %d bytes, want none", len(all[0].Text))
	}
	if all := agg.RemoteGroupVersions(); len(all) != 0 {
		t.Errorf("got v3 documents %v, want none", all)
	}
}
