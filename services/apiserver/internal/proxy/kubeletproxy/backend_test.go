package kubeletproxy_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"binnacle/services/apiserver/internal/proxy/kubeletproxy"
)

// upgradeHeaders holds the headers of a request that upgrades its connection.
const upgradeHeaders = "Connection: Upgrade\r\nUpgrade: odd/1\r\n"

// webSocket returns the headers of a WebSocket handshake.
func webSocket(protocol string) string {
	return "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: " +
		protocol + "\r\n"
}

// paths maps the paths of the front end to the request headers that they need; see serveFront.
var paths = map[string]string{
	"/plain/target": "", "/plain/kubelet": "", "/log": "",
	"/target": upgradeHeaders, "/kubelet": upgradeHeaders, "/exec": upgradeHeaders, "/port": upgradeHeaders,
	"/exec/translated": webSocket(channelProtocol), "/port/tunnelled": webSocket(tunnelProtocol),
}

// rawBackend is a front end for a backend that writes raw responses, as a pod and as a kubelet.
type rawBackend struct {
	*httptest.Server
	ctx context.Context // of all requests
}

// newRawBackend starts a front end and a backend. The backend calls respond for each connection,
// after it has read the head of a request.
func newRawBackend(
	t *testing.T,
	change func(*kubeletproxy.Options),
	respond func(conn net.Conn, read *bufio.Reader),
) *rawBackend {
	t.Helper()
	pod, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS() // creates the certificate
	certified.Close()
	kubelet, err := tls.Listen("tcp", "127.0.0.1:0", certified.TLS)
	if err != nil {
		t.Fatal(err)
	}
	for _, listener := range []net.Listener{pod, kubelet} {
		stopped := make(chan bool)
		go func() {
			defer close(stopped)
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				read := bufio.NewReader(conn)
				if _, err := http.ReadRequest(read); err == nil {
					respond(conn, read)
				}
				_ = conn.Close()
			}
		}()
		t.Cleanup(func() { listener.Close(); <-stopped })
	}
	o := kubeletproxy.NewOptions()
	if change != nil {
		change(&o)
	}
	upstream, err := kubeletproxy.New(o, prometheus.NewRegistry(), func(ctx context.Context, network, addr string) (net.Conn, error) {
		if strings.HasSuffix(addr, ":80") {
			addr = pod.Addr().String()
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(upstream.Close)
	s := &rawBackend{ctx: t.Context()}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(s.ctx, cancel)()
		w.Header().Set("Audit-Id", "ours")
		serveFront(upstream, w, r.WithContext(ctx), &url.URL{Scheme: "https", Host: kubelet.Addr().String(), Path: "/x"})
	}))
	t.Cleanup(s.Close)
	return s
}

// serveFront proxies a request in the way that its path names.
func serveFront(upstream *kubeletproxy.Upstream, w http.ResponseWriter, r *http.Request, kubelet *url.URL) {
	path := r.URL.Path
	switch {
	case strings.HasSuffix(path, "/target"):
		upstream.Proxy(w, r, kubeletproxy.Target, &url.URL{Scheme: "http", Host: "192.0.2.1:80", Path: path}, plainErrors{})
	case strings.HasSuffix(path, "/kubelet"):
		upstream.Proxy(w, r, kubeletproxy.Kubelet, kubelet, plainErrors{})
	case strings.HasPrefix(path, "/exec"):
		upstream.Command(w, r, kubelet, kubeletproxy.Streams{Stdout: true}, true, plainErrors{})
	case strings.HasPrefix(path, "/port"):
		upstream.PortForward(w, r, kubelet, true, plainErrors{})
	default:
		log, err := upstream.Log(r.Context(), kubeletproxy.Kubelet, kubelet, "p")
		if err != nil {
			plainErrors{}.Error(w, r, err)
			return
		}
		_, _ = io.Copy(w, log)
		_ = log.Close()
	}
}

// send sends a request with the headers for its path, and returns the connection.
func (s *rawBackend) send(t *testing.T, path string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: h\r\n%s\r\n", path, paths[path])
	return conn
}

// TestEndlessResponseHeadFails checks that only a bounded part of a response head is read.
func TestEndlessResponseHeadFails(t *testing.T) {
	const endless = 64 << 20 // far more than socket buffers hold
	for name, head := range map[string]struct{ begin, line string }{
		"accepted": {
			begin: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: odd/1\r\n",
			line:  "X: " + strings.Repeat("x", 4<<10) + "\r\n",
		},
		"rejected":         {begin: "HTTP/1.1 403 Forbidden\r\n", line: "X: " + strings.Repeat("x", 4<<10) + "\r\n"},
		"one endless line": {begin: "HTTP/1.1 403 Forbidden\r\nX: ", line: strings.Repeat("x", 4<<10)},
		"short fields":     {begin: "HTTP/1.1 403 Forbidden\r\n", line: strings.Repeat("X:\r\n", 1<<10)},
	} {
		for path := range paths {
			t.Run(name+path, func(t *testing.T) {
				sent := make(chan int, 1)
				s := newRawBackend(t, nil, func(conn net.Conn, _ *bufio.Reader) {
					n, err := io.WriteString(conn, head.begin)
					for err == nil && n < endless {
						var more int
						more, err = io.WriteString(conn, head.line)
						n += more
					}
					sent <- n
				})
				conn := s.send(t, path)
				if n := <-sent; n >= endless {
					t.Errorf("got %d bytes of a response head read, want fewer than %d", n, endless)
				}
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil || resp.StatusCode < 500 && !strings.HasSuffix(path, "translated") {
					t.Errorf("got response %v, %v, want an error status", resp, err)
				}
			})
		}
	}
}

// TestTooManyResponseFieldsFail checks that a response with many short fields is rejected, because
// they take many times the memory of their text.
func TestTooManyResponseFieldsFail(t *testing.T) {
	s := newRawBackend(t, nil, func(conn net.Conn, _ *bufio.Reader) {
		_, _ = io.WriteString(conn, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n"+strings.Repeat("X:\r\n", 20_000)+"\r\n")
	})
	for _, path := range []string{"/plain/target", "/target", "/port"} {
		resp, err := http.ReadResponse(bufio.NewReader(s.send(t, path)), nil)
		if err != nil || resp.StatusCode < 500 {
			t.Errorf("%s: got response %v, %v, want an error status", path, resp, err)
			continue
		}
		if text, _ := io.ReadAll(resp.Body); !strings.Contains(string(text), "response headers") {
			t.Errorf("%s: got body %s, want it to contain %q", path, text, "the response headers are too long")
		}
	}
}

// TestUnansweredRequestEndsWithClientOrServer checks that the connection to a silent backend is
// closed when the client disconnects or the server cancels the request.
func TestUnansweredRequestEndsWithClientOrServer(t *testing.T) {
	for path := range paths {
		for _, ended := range []string{"client", "server"} {
			t.Run(ended+path, func(t *testing.T) {
				asked, over := make(chan bool, 1), make(chan bool, 1)
				s := newRawBackend(t, nil, func(_ net.Conn, read *bufio.Reader) {
					asked <- true
					_, _ = io.Copy(io.Discard, read)
					over <- true
				})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s.ctx = ctx
				conn := s.send(t, path)
				<-asked
				if ended == "client" {
					conn.Close()
				} else {
					cancel()
				}
				waitFor(t, over)
			})
		}
	}
}

// waitFor waits for an event.
func waitFor(t *testing.T, over <-chan bool) {
	t.Helper()
	select {
	case <-over:
	case <-time.After(20 * time.Second):
		t.Fatal("the connection is still open after 20s, want it closed")
	}
}

// TestSilentBackendTimesOut checks that a request to a silent backend fails after the response
// timeout, although the client keeps its connection open.
func TestSilentBackendTimesOut(t *testing.T) {
	for path := range paths {
		t.Run(path, func(t *testing.T) {
			over := make(chan bool, 1)
			s := newRawBackend(t, func(o *kubeletproxy.Options) {
				o.UpgradeTimeout, o.AnswerTimeout = 200*time.Millisecond, 200*time.Millisecond
			}, func(_ net.Conn, read *bufio.Reader) {
				_, _ = io.Copy(io.Discard, read)
				over <- true
			})
			conn := s.send(t, path)
			_, _ = io.WriteString(conn, "x") // hides the end of the client
			waitFor(t, over)
			want := http.StatusGatewayTimeout
			switch {
			case path == "/log":
				want = http.StatusInternalServerError
			case paths[path] == "":
				want = http.StatusServiceUnavailable
			case strings.HasSuffix(path, "translated"):
				want = http.StatusSwitchingProtocols // the error is sent on a channel
			}
			if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != want {
				t.Errorf("got response %v, %v, want status %d", resp, err, want)
			}
		})
	}
}

// TestOwnHeadersAreRemoved checks that backends cannot set headers of this server.
func TestOwnHeadersAreRemoved(t *testing.T) {
	const theirs = "Audit-Id: theirs\r\nX-Kubernetes-PF-FlowSchema-UID: theirs\r\nx-kubernetes-pf-prioritylevel-uid:\r\n theirs\r\nX-Theirs: kept\r\n"
	for _, test := range []struct {
		path, respond string
		ours          string
	}{
		{path: "/plain/target", respond: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + theirs + "\r\n", ours: "ours"},
		{
			path: "/plain/target",
			respond: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Audit-Id\r\n" +
				theirs + "\r\n1\r\na\r\n0\r\n" + theirs + "\r\n",
			ours: "ours",
		},
		{path: "/plain/kubelet", respond: "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n" + theirs + "\r\n", ours: "ours"},
		{path: "/target", respond: "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n" + theirs + "\r\n", ours: "ours"},
		{path: "/exec", respond: "HTTP/1.1 403 Forbidden\r\nConnection: X-Hop\r\nX-Hop: theirs\r\n" + theirs + "\r\n", ours: "ours"},
		{path: "/target", respond: "HTTP/1.1 101 Switching Protocols\r\n" + upgradeHeaders + theirs + "\r\n", ours: ""},
	} {
		s := newRawBackend(t, nil, func(conn net.Conn, _ *bufio.Reader) { _, _ = io.WriteString(conn, test.respond) })
		resp, err := http.ReadResponse(bufio.NewReader(s.send(t, test.path)), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		for _, h := range []http.Header{resp.Header, resp.Trailer} {
			for name, values := range h {
				if name != "X-Theirs" && strings.Contains(strings.Join(values, ","), "theirs") {
					t.Errorf("%s, %.12s: got header %s: %q, want none of the kubelet", test.path, test.respond, name, values)
				}
			}
		}
		if got := resp.Header.Get("Audit-Id"); got != test.ours || resp.Header.Get("X-Theirs") != "kept" {
			t.Errorf("%s, %.12s: got headers %v, want Audit-Id %q and X-Theirs kept", test.path, test.respond, resp.Header, test.ours)
		}
	}
}

// TestRequestTrailersAreDropped checks that trailers are not forwarded, because some servers treat
// them as headers.
func TestRequestTrailersAreDropped(t *testing.T) {
	for _, path := range []string{"/target", "/kubelet", "/exec", "/port", "/plain/target", "/plain/kubelet"} {
		followed := make(chan string, 1)
		s := newRawBackend(t, nil, func(conn net.Conn, read *bufio.Reader) {
			body, line := "", ""
			for err := error(nil); err == nil && line != "\r\n"; body += line {
				line, err = read.ReadString('\n')
			}
			followed <- body
			_, _ = io.WriteString(conn, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
		})
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(conn,
			"POST %s HTTP/1.1\r\nHost: h\r\n%sTransfer-Encoding: chunked\r\nTrailer: X-Remote-User\r\n\r\n1\r\na\r\n0\r\nX-Remote-User: root\r\n\r\n",
			path, paths[path])
		if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: got response %v, %v, want status 403", path, resp, err)
		}
		if got := <-followed; got != "1\r\na\r\n0\r\n\r\n" {
			t.Errorf("%s: got body %q, want one chunk with a", path, got)
		}
		conn.Close()
	}
}

// TestUpgradedConnectionCopiesBothDirections checks that all data arrives, from the first byte on,
// and that the connection of one side is closed when the other side closes its own.
func TestUpgradedConnectionCopiesBothDirections(t *testing.T) {
	for _, path := range []string{"/target", "/kubelet", "/exec"} {
		for _, closing := range []string{"client", "backend"} {
			over := make(chan bool, 1)
			s := newRawBackend(t, nil, func(conn net.Conn, read *bufio.Reader) {
				_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n"+upgradeHeaders+"x-odd-CASE:  kept \r\n\r\nfirst\n")
				for {
					line, err := read.ReadString('\n')
					if err != nil || line == "go\n" {
						break
					}
					_, _ = io.WriteString(conn, line)
				}
				over <- true
			})
			conn := s.send(t, path)
			_, _ = io.WriteString(conn, "early\n")
			read := bufio.NewReader(conn)
			var got string
			for !strings.HasSuffix(got, "early\n") {
				line, err := read.ReadString('\n')
				if err != nil {
					t.Fatalf("%s: got %q, %v, want more data", path, got, err)
				}
				got += line
			}
			if want := "HTTP/1.1 101 Switching Protocols\r\n" + upgradeHeaders + "x-odd-CASE:  kept \r\n\r\nfirst\nearly\n"; got != want {
				t.Errorf("%s: got %q, want %q", path, got, want)
			}
			if closing == "client" {
				conn.Close()
			} else {
				_, _ = io.WriteString(conn, "go\n")
				if _, err := read.ReadByte(); err != io.EOF {
					t.Errorf("%s: after the backend closed: got %v, want EOF", path, err)
				}
			}
			waitFor(t, over)
		}
	}
}

// TestUnrequestedStreamProtocolFails checks that a command fails with an error if the kubelet
// selects another protocol.
func TestUnrequestedStreamProtocolFails(t *testing.T) {
	for _, protocol := range []string{"v9.channel.k8s.io", "v5.channel.k8s.io, v4.channel.k8s.io"} {
		s := newRawBackend(t, nil, func(conn net.Conn, _ *bufio.Reader) {
			_, _ = io.WriteString(conn,
				"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: "+
					protocol+"\r\n\r\n")
			_, _ = io.Copy(io.Discard, conn)
		})
		x, err := remotecommand.NewWebSocketExecutor(&rest.Config{Host: s.URL}, http.MethodGet, s.URL+"/exec/translated")
		if err != nil {
			t.Fatal(err)
		}
		err = x.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard})
		if err == nil || !strings.Contains(err.Error(), "which was not requested") {
			t.Errorf("%s: %v", protocol, err)
		}
	}
}
