package upgrade_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"binnacle/services/apiserver/internal/proxy/responselimit"
	"binnacle/services/apiserver/internal/proxy/upgrade"
)

// clientErrors records the errors that the client would receive.
type clientErrors struct{ messages []error }

// Error implements proxy.ErrorResponder.
func (f *clientErrors) Error(_ http.ResponseWriter, _ *http.Request, err error) {
	f.messages = append(f.messages, err)
}

// client is the response writer of a client. Its connection can be hijacked if conn is set.
type client struct {
	*httptest.ResponseRecorder
	clientErrors
	conn      net.Conn
	recovered any // value of the panic that aborted the response
	sent      map[string]time.Time
}

// Flush records when the body grew.
func (c *client) Flush() {
	c.ResponseRecorder.Flush()
	if _, before := c.sent[c.Body.String()]; !before {
		c.sent[c.Body.String()] = time.Now()
	}
}

func (c *client) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if c.conn == nil {
		return nil, nil, http.ErrNotSupported
	}
	return c.conn, bufio.NewReadWriter(bufio.NewReader(c.conn), bufio.NewWriter(c.conn)), nil
}

// socket accepts deadlines after the other side has closed it, as sockets of the operating system
// do.
type socket struct{ net.Conn }

func (s socket) SetDeadline(at time.Time) error {
	_ = s.Conn.SetDeadline(at)
	return nil
}

func (s socket) SetReadDeadline(at time.Time) error { return s.SetDeadline(at) }

// newProxy returns a Proxy whose backend calls respond for each connection, after it has read the
// head of a request.
func newProxy(respond func(conn net.Conn, read *bufio.Reader)) *upgrade.Proxy {
	return &upgrade.Proxy{
		URL:     &url.URL{Scheme: "http", Host: "backend", Path: "/x"},
		Timeout: time.Minute,
		Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			local, remote := net.Pipe()
			go func() {
				defer remote.Close()
				read := bufio.NewReader(remote)
				if _, err := http.ReadRequest(read); err == nil {
					respond(remote, read)
				}
			}()
			return socket{local}, nil
		}},
	}
}

// proxyTo returns a Proxy whose backend sends a fixed response.
func proxyTo(response string) *upgrade.Proxy {
	return newProxy(func(conn net.Conn, _ *bufio.Reader) { _, _ = io.WriteString(conn, response) })
}

// serve sends an upgrade request through p and returns c, even if the response is aborted.
func (c *client) serve(ctx context.Context, p *upgrade.Proxy) (out *client) {
	out = c
	c.ResponseRecorder, c.sent = httptest.NewRecorder(), map[string]time.Time{}
	c.Header().Set("Audit-Id", "local")
	c.Header().Set("X-Local", "local")
	defer func() { c.recovered = recover() }()
	p.Errors = &c.clientErrors
	r := httptest.NewRequest("GET", "/y", nil).WithContext(ctx)
	r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"odd/1"}}
	p.Serve(c, r)
	return c
}

// result describes the outcome of a request.
func (c *client) result() string {
	if len(c.messages) > 0 {
		return fmt.Sprint(c.messages)
	}
	return fmt.Sprintf("%d %s %v", c.Code, c.Body, c.recovered)
}

// wantResult compares the outcome of a request.
func wantResult(t *testing.T, c *client, want string) {
	t.Helper()
	if got := c.result(); got != want {
		t.Errorf("result = %q, want %q", got, want)
	}
}

// TestRejectedUpgradeIsForwarded checks that a response of 400 or above reaches the client with the
// headers of the backend, and that any other or malformed response is an error.
func TestRejectedUpgradeIsForwarded(t *testing.T) {
	long := strings.Repeat("x", 8<<10) // longer than one read
	for response, want := range map[string]string{
		"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno":                            "403 no <nil>",
		"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n": "404 no <nil>",
		"HTTP/1.1 403 Forbidden\r\nX: " + long + "\r\nContent-Length: 2\r\n\r\nno":         "403 no <nil>",
		"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n":                            "400  <nil>",
		"HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\nno":                            "403 no net/http: abort Handler",
		"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\n\r\n":                               "[invalid upgrade response: status code 302]",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok":                                   "[invalid upgrade response: status code 200]",
		"nonsense\r\n\r\n":                   `[malformed HTTP response "nonsense"]`,
		"HTTP/1.1 403 Forbidden\r\nX: y\r\n": "[unexpected EOF]",
		"HTTP/1.1 403 Forbidden\r\nX: " + strings.Repeat("x", responselimit.MaxHead): "[the response headers are too long]",
	} {
		synctest.Test(t, func(t *testing.T) {
			c := new(client).serve(t.Context(), proxyTo(response))
			if got := c.result(); got != want {
				t.Errorf("%.60q: got %q, want %q", response, got, want)
			}
			h := c.Result().Header
			if len(c.messages) == 0 && (h.Get("Connection") != "close" || h.Get("Audit-Id") != "local" || h.Get("X-Local") != "") {
				t.Errorf("%.60q: got headers %v, want Connection close, Audit-Id local, no X-Local", response, h)
			}
		})
	}
}

// TestRejectionKeepsHTTP2Connection checks that a rejection does not ask an HTTP/2 client to close
// the connection.
func TestRejectionKeepsHTTP2Connection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &client{ResponseRecorder: httptest.NewRecorder(), sent: map[string]time.Time{}}
		r := httptest.NewRequest("GET", "/y", nil)
		r.ProtoMajor = 2
		proxyTo("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno").Serve(c, r)
		if c.result() != "403 no <nil>" || c.Header().Get("Connection") != "" {
			t.Errorf("got %s, headers %v, want 403 without Connection", c.result(), c.Header())
		}
	})
}

// TestUnreachableBackendIsAnError checks the errors of a failed connection and of one that the backend
// closes.
func TestUnreachableBackendIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := proxyTo("")
		p.Transport.DialContext = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("unreachable") }
		wantResult(t, new(client).serve(t.Context(), p), "[error dialing backend: unreachable]")
		p.Transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			local, remote := net.Pipe()
			remote.Close()
			return socket{local}, nil
		}
		wantResult(t, new(client).serve(t.Context(), p), "[error sending request: io: read/write on closed pipe]")
	})
}

// TestSilentBackendTimesOut checks that the wait ends with the timeout or with the request.
func TestSilentBackendTimesOut(t *testing.T) {
	silent := func(conn net.Conn, _ *bufio.Reader) {
		_, _ = io.WriteString(conn, "HTTP/1.1 403 Forb")
		_, _ = io.Copy(io.Discard, conn)
	}
	const late = "[the server that was asked to upgrade the connection did not answer in time]"
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		got := strings.Replace(new(client).serve(t.Context(), newProxy(silent)).result(), "Timeout: ", "", 1)
		if got != late || time.Since(start) != time.Minute {
			t.Errorf("got %s after %v, want %s after 1m0s", got, time.Since(start), late)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		got := new(client).serve(ctx, newProxy(silent)).result()
		if got != "[io: read/write on closed pipe]" || time.Since(start) != time.Second {
			t.Errorf("got %s after %v, want a closed pipe after 1s", got, time.Since(start))
		}
	})
	synctest.Test(t, func(t *testing.T) { // a request that has ended did not time out
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		p := proxyTo("")
		p.Transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			time.Sleep(2 * p.Timeout)
			return nil, errors.New("unreachable")
		}
		wantResult(t, new(client).serve(ctx, p), "[error dialing backend: unreachable]")
	})
}

// TestRejectionIsStreamed checks that parts are flushed, and that an incomplete rejection is
// aborted after a timeout.
func TestRejectionIsStreamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		c := new(client).serve(t.Context(), newProxy(func(conn net.Conn, _ *bufio.Reader) {
			_, _ = io.WriteString(conn, "HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\nno")
			_, _ = io.Copy(io.Discard, conn)
		}))
		if at, sent := c.sent["no"]; !sent || at != start {
			t.Errorf("first part sent: %t, after %v; want true, after 0s", sent, at.Sub(start))
		}
		if c.recovered != http.ErrAbortHandler || time.Since(start) != 10*time.Second {
			t.Errorf("got panic %v after %v, want ErrAbortHandler after 10 s", c.recovered, time.Since(start))
		}
	})
}

// switching is the head of a response that accepts the upgrade, without its last empty line.
const switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: odd/1\r\n"

// echoBytes upgrades the connection and sends its input back.
func echoBytes(conn net.Conn, read *bufio.Reader) {
	_, _ = io.WriteString(conn, switching+"\r\n")
	_, _ = io.Copy(conn, read)
}

// TestSwitchingProtocolsIsForwardedUnchanged checks that only the headers of this server are
// removed.
func TestSwitchingProtocolsIsForwardedUnchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local, remote := net.Pipe()
		go (&client{conn: remote}).serve(t.Context(),
			proxyTo(switching+"x-odd-CASE:  kept \r\n folded\r\nAudit-Id:\r\n remote\r\n\tremote\r\n\r\nfirst"))
		text, _ := io.ReadAll(local)
		if want := switching + "x-odd-CASE:  kept \r\n folded\r\n\r\nfirst"; string(text) != want {
			t.Errorf("got %q, want %q", text, want)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		wantResult(t, new(client).serve(t.Context(), newProxy(echoBytes)), "[error hijacking connection: feature not supported]")
	})
}

// TestUpgradedConnectionEndsWithRequestOrLifetime checks the lifetime of spliced connections: that
// of the request, or Lifetime if it is set.
func TestUpgradedConnectionEndsWithRequestOrLifetime(t *testing.T) {
	for _, hasLifetime := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			lifetime, endLifetime := context.WithCancel(t.Context())
			defer endLifetime()
			local, remote := net.Pipe()
			p := newProxy(echoBytes)
			var upgrades []bool
			p.OnResponse = func(upgraded bool) { upgrades = append(upgrades, upgraded) }
			if hasLifetime {
				p.Lifetime = lifetime
			}
			go (&client{conn: remote}).serve(ctx, p)
			read := bufio.NewReader(local)
			if resp, err := http.ReadResponse(read, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("response = %v, %v, want status 101", resp, err)
			}
			echoes := func() bool {
				if _, err := io.WriteString(local, "hello\n"); err != nil {
					return false
				}
				line, _ := read.ReadString('\n')
				return line == "hello\n"
			}
			if !echoes() || len(upgrades) != 1 || !upgrades[0] {
				t.Errorf("OnResponse was called with %v, want [true], and an echo", upgrades)
			}
			cancel()
			synctest.Wait()
			if echoes() != hasLifetime {
				t.Errorf("after the request: got an echo: %t, want %t", !hasLifetime, hasLifetime)
			}
			endLifetime()
			synctest.Wait()
			if echoes() {
				t.Error("got an echo after the end of Lifetime, want none")
			}
		})
	}
}

// TestRequestEndsDuringUpgrade checks that a request that ends when the backend upgrades is not
// spliced.
func TestRequestEndsDuringUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		local, remote := net.Pipe()
		p := newProxy(echoBytes)
		p.OnResponse = func(bool) { cancel() }
		p.Lifetime = t.Context()
		go (&client{conn: remote}).serve(ctx, p)
		if text, err := io.ReadAll(local); err != nil || len(text) > 0 {
			t.Errorf("client received %q, %v, want nothing", text, err)
		}
	})
}
