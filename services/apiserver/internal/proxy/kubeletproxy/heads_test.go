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

// upgrading are the fields of a request that turns its connection into another protocol.
const upgrading = "Connection: Upgrade\r\nUpgrade: odd/1\r\n"

// webSocket are those of a client of a protocol over WebSocket.
func webSocket(protocol string) string {
	return "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: " + protocol + "\r\n"
}

// ways are those on which requests are carried on, with the fields that take them.
var ways = map[string]string{
	"/plain/target": "", "/plain/kubelet": "", "/log": "",
	"/target": upgrading, "/kubelet": upgrading, "/exec": upgrading, "/port": upgrading,
	"/exec/translated": webSocket(channels), "/port/tunnelled": webSocket(tunnelled),
}

// stranger answers connections as it likes, and is a pod and a kubelet.
type stranger struct {
	*httptest.Server
	ctx context.Context // of all requests
}

// between is a server between a client and a stranger, which is given each connection
// once the head of a request has been read.
func between(t *testing.T, change func(*kubeletproxy.Options), say func(conn net.Conn, read *bufio.Reader)) *stranger {
	t.Helper()
	pod, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	there := httptest.NewUnstartedServer(nil)
	there.StartTLS() // for its certificate
	there.Close()
	kubelet, err := tls.Listen("tcp", "127.0.0.1:0", there.TLS)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []net.Listener{pod, kubelet} {
		over := make(chan bool)
		go func() {
			defer close(over)
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				read := bufio.NewReader(conn)
				if _, err := http.ReadRequest(read); err == nil {
					say(conn, read)
				}
				_ = conn.Close()
			}
		}()
		t.Cleanup(func() { l.Close(); <-over })
	}
	o := kubeletproxy.NewOptions()
	if change != nil {
		change(&o)
	}
	up, err := kubeletproxy.New(o, prometheus.NewRegistry(), func(ctx context.Context, network, addr string) (net.Conn, error) {
		if strings.HasSuffix(addr, ":80") {
			addr = pod.Addr().String()
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(up.Close)
	s := &stranger{ctx: t.Context()}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(s.ctx, cancel)()
		w.Header().Set("Audit-Id", "ours")
		carryOn(up, w, r.WithContext(ctx), &url.URL{Scheme: "https", Host: kubelet.Addr().String(), Path: "/x"})
	}))
	t.Cleanup(s.Close)
	return s
}

// carryOn carries a request on in the way that its path says.
func carryOn(up *kubeletproxy.Upstream, w http.ResponseWriter, r *http.Request, kubelet *url.URL) {
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/target"):
		up.Proxy(w, r, kubeletproxy.Target, &url.URL{Scheme: "http", Host: "192.0.2.1:80", Path: path}, plainErrors{})
	case strings.HasSuffix(path, "/kubelet"):
		up.Proxy(w, r, kubeletproxy.Kubelet, kubelet, plainErrors{})
	case strings.HasPrefix(path, "/exec"):
		up.Command(w, r, kubelet, kubeletproxy.Streams{Stdout: true}, true, plainErrors{})
	case strings.HasPrefix(path, "/port"):
		up.PortForward(w, r, kubelet, true, plainErrors{})
	default:
		log, err := up.Log(r.Context(), kubeletproxy.Kubelet, kubelet, "p")
		if err != nil {
			plainErrors{}.Error(w, r, err)
			return
		}
		_, _ = io.Copy(w, log)
		_ = log.Close()
	}
}

// ask sends a request that takes a way.
func (s *stranger) ask(t *testing.T, path string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: h\r\n%s\r\n", path, ways[path])
	return conn
}

// TestHeadsWithoutEnd are read only so far, on every way.
func TestHeadsWithoutEnd(t *testing.T) {
	const much = 64 << 20 // what lies in buffers of the system is far less
	for how, head := range map[string]struct{ begin, line string }{
		"agreed":   {"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: odd/1\r\n", "X: " + strings.Repeat("x", 4<<10) + "\r\n"},
		"refused":  {"HTTP/1.1 403 Forbidden\r\n", "X: " + strings.Repeat("x", 4<<10) + "\r\n"},
		"one line": {"HTTP/1.1 403 Forbidden\r\nX: ", strings.Repeat("x", 4<<10)},
		"short":    {"HTTP/1.1 403 Forbidden\r\n", strings.Repeat("X:\r\n", 1<<10)},
	} {
		for path := range ways {
			t.Run(how+path, func(t *testing.T) {
				said := make(chan int, 1)
				s := between(t, nil, func(conn net.Conn, _ *bufio.Reader) {
					n, err := io.WriteString(conn, head.begin)
					for err == nil && n < much {
						var more int
						more, err = io.WriteString(conn, head.line)
						n += more
					}
					said <- n
				})
				conn := s.ask(t, path)
				if n := <-said; n >= much {
					t.Errorf("%d bytes of a head were taken", n)
				}
				if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode < 500 && !strings.HasSuffix(path, "translated") {
					t.Errorf("%v %v", resp, err)
				}
			})
		}
	}
}

// TestHeadsOfManyFields are refused although they are short.
func TestHeadsOfManyFields(t *testing.T) {
	s := between(t, nil, func(conn net.Conn, _ *bufio.Reader) {
		_, _ = io.WriteString(conn, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n"+strings.Repeat("X:\r\n", 20_000)+"\r\n")
	})
	for _, path := range []string{"/plain/target", "/target", "/port"} {
		resp, err := http.ReadResponse(bufio.NewReader(s.ask(t, path)), nil)
		if err != nil || resp.StatusCode < 500 {
			t.Errorf("%s: %v %v", path, resp, err)
			continue
		}
		if text, _ := io.ReadAll(resp.Body); !strings.Contains(string(text), "the headers of the answer are too long\n") {
			t.Errorf("%s: %s", path, text)
		}
	}
}

// TestWhatIsNotAnsweredEndsWithItsRequest: no connection is left behind when the client
// goes, or the server ends.
func TestWhatIsNotAnsweredEndsWithItsRequest(t *testing.T) {
	for path := range ways {
		for _, ended := range []string{"client", "server"} {
			t.Run(ended+path, func(t *testing.T) {
				asked, over := make(chan bool, 1), make(chan bool, 1)
				s := between(t, nil, func(_ net.Conn, read *bufio.Reader) {
					asked <- true
					_, _ = io.Copy(io.Discard, read)
					over <- true
				})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s.ctx = ctx
				conn := s.ask(t, path)
				<-asked
				if ended == "client" {
					conn.Close()
				} else {
					cancel()
				}
				within(t, over)
			})
		}
	}
}

// within waits for something that should come soon.
func within(t *testing.T, over <-chan bool) {
	t.Helper()
	select {
	case <-over:
	case <-time.After(20 * time.Second):
		t.Fatal("the connection is still open")
	}
}

// TestSilence is borne for a time, whatever the client does.
func TestSilence(t *testing.T) {
	for path := range ways {
		t.Run(path, func(t *testing.T) {
			over := make(chan bool, 1)
			s := between(t, func(o *kubeletproxy.Options) {
				o.UpgradeTimeout, o.AnswerTimeout = 200*time.Millisecond, 200*time.Millisecond
			}, func(_ net.Conn, read *bufio.Reader) {
				_, _ = io.Copy(io.Discard, read)
				over <- true
			})
			conn := s.ask(t, path)
			_, _ = io.WriteString(conn, "x") // so that the client's end would not be seen
			within(t, over)
			want := http.StatusGatewayTimeout
			switch {
			case path == "/log":
				want = http.StatusInternalServerError
			case ways[path] == "":
				want = http.StatusServiceUnavailable
			case strings.HasSuffix(path, "translated"):
				want = http.StatusSwitchingProtocols // the error is told in a channel
			}
			if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != want {
				t.Errorf("%v %v, want %d", resp, err, want)
			}
		})
	}
}

// TestOwnFields: what this server says of an answer, nobody else does.
func TestOwnFields(t *testing.T) {
	const theirs = "Audit-Id: theirs\r\nX-Kubernetes-PF-FlowSchema-UID: theirs\r\nx-kubernetes-pf-prioritylevel-uid:\r\n theirs\r\nX-Theirs: kept\r\n"
	for _, c := range []struct {
		path, say string
		ours      string
	}{
		{"/plain/target", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + theirs + "\r\n", "ours"},
		{"/plain/target", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Audit-Id\r\n" + theirs + "\r\n1\r\na\r\n0\r\n" + theirs + "\r\n", "ours"},
		{"/plain/kubelet", "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n" + theirs + "\r\n", "ours"},
		{"/target", "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n" + theirs + "\r\n", "ours"},
		{"/exec", "HTTP/1.1 403 Forbidden\r\nConnection: X-Hop\r\nX-Hop: theirs\r\n" + theirs + "\r\n", "ours"},
		{"/target", "HTTP/1.1 101 Switching Protocols\r\n" + upgrading + theirs + "\r\n", ""},
	} {
		s := between(t, nil, func(conn net.Conn, _ *bufio.Reader) { _, _ = io.WriteString(conn, c.say) })
		resp, err := http.ReadResponse(bufio.NewReader(s.ask(t, c.path)), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		for _, h := range []http.Header{resp.Header, resp.Trailer} {
			for name, values := range h {
				if name != "X-Theirs" && strings.Contains(strings.Join(values, ","), "theirs") {
					t.Errorf("%s, %.12s: %s: %q", c.path, c.say, name, values)
				}
			}
		}
		if got := resp.Header.Get("Audit-Id"); got != c.ours || resp.Header.Get("X-Theirs") != "kept" {
			t.Errorf("%s, %.12s: %v", c.path, c.say, resp.Header)
		}
	}
}

// TestTrailersGoNoFurther: what follows a body is none of what this server has taken out of the head,
// and some take it for that.
func TestTrailersGoNoFurther(t *testing.T) {
	for _, path := range []string{"/target", "/kubelet", "/exec", "/port", "/plain/target", "/plain/kubelet"} {
		followed := make(chan string, 1)
		s := between(t, nil, func(conn net.Conn, read *bufio.Reader) {
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
		_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: h\r\n%sTransfer-Encoding: chunked\r\nTrailer: X-Remote-User\r\n\r\n1\r\na\r\n0\r\nX-Remote-User: root\r\n\r\n", path, ways[path])
		if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %v %v", path, resp, err)
		}
		if got := <-followed; got != "1\r\na\r\n0\r\n\r\n" {
			t.Errorf("%s: the other side is told %q", path, got)
		}
		conn.Close()
	}
}

// TestRefusedUpgrades are answered as they are refused; one that breaks off is not taken
// for whole.
func TestRefusedUpgrades(t *testing.T) {
	for say, want := range map[string]string{
		"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno":                            "403 no <nil>",
		"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n": "404 no <nil>",
		"HTTP/1.1 500 Sorry\r\n\r\nno":                                                     "500 no <nil>",
		"HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\nno":                            "403 no unexpected EOF",
		"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nno":              "404 no unexpected EOF",
		"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\n\r\n":                               "500 invalid upgrade response: status code 302\n <nil>",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok":                                   "500 invalid upgrade response: status code 200\n <nil>",
		"nonsense\r\n\r\n":                   "500 malformed HTTP response \"nonsense\"\n <nil>",
		"HTTP/1.1 403 Forbidden\r\nX: y\r\n": "500 unexpected EOF\n <nil>",
	} {
		s := between(t, nil, func(conn net.Conn, _ *bufio.Reader) { _, _ = io.WriteString(conn, say) })
		resp, err := http.ReadResponse(bufio.NewReader(s.ask(t, "/target")), nil)
		if err != nil {
			t.Errorf("%q: %v", say, err)
			continue
		}
		text, err := io.ReadAll(resp.Body)
		if got := fmt.Sprintf("%d %s %v", resp.StatusCode, text, err); got != want {
			t.Errorf("%q: %q, want %q", say, got, want)
		}
		if want[0] == '4' && !resp.Close {
			t.Errorf("%q: the connection goes on", say)
		}
	}
}

// TestUpgradedConnections carry what either side says from the first byte on, until one
// of them goes.
func TestUpgradedConnections(t *testing.T) {
	for _, path := range []string{"/target", "/kubelet", "/exec"} {
		for _, goes := range []string{"client", "other"} {
			over := make(chan bool, 1)
			s := between(t, nil, func(conn net.Conn, read *bufio.Reader) {
				_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n"+upgrading+"x-odd-CASE:  kept \r\n\r\nfirst\n")
				for {
					line, err := read.ReadString('\n')
					if err != nil || line == "go\n" {
						break
					}
					_, _ = io.WriteString(conn, line)
				}
				over <- true
			})
			conn := s.ask(t, path)
			_, _ = io.WriteString(conn, "early\n")
			read := bufio.NewReader(conn)
			var got string
			for !strings.HasSuffix(got, "early\n") {
				line, err := read.ReadString('\n')
				if err != nil {
					t.Fatalf("%s: %q %v", path, got, err)
				}
				got += line
			}
			if want := "HTTP/1.1 101 Switching Protocols\r\n" + upgrading + "x-odd-CASE:  kept \r\n\r\nfirst\nearly\n"; got != want {
				t.Errorf("%s: %q, want %q", path, got, want)
			}
			if goes == "client" {
				conn.Close()
			} else {
				_, _ = io.WriteString(conn, "go\n")
				if _, err := read.ReadByte(); err != io.EOF {
					t.Errorf("%s: %v", path, err)
				}
			}
			within(t, over)
		}
	}
}

// TestStreamProtocolsThatNobodyAskedFor: a kubelet that agrees in one is no kubelet that runs the
// command, and the client is told why.
func TestStreamProtocolsThatNobodyAskedFor(t *testing.T) {
	for _, spoken := range []string{"v9.channel.k8s.io", "v5.channel.k8s.io, v4.channel.k8s.io"} {
		s := between(t, nil, func(conn net.Conn, _ *bufio.Reader) {
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: "+spoken+"\r\n\r\n")
			_, _ = io.Copy(io.Discard, conn)
		})
		x, err := remotecommand.NewWebSocketExecutor(&rest.Config{Host: s.URL}, http.MethodGet, s.URL+"/exec/translated")
		if err != nil {
			t.Fatal(err)
		}
		err = x.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard})
		if err == nil || !strings.Contains(err.Error(), "which nobody asked for") {
			t.Errorf("%s: %v", spoken, err)
		}
	}
}
