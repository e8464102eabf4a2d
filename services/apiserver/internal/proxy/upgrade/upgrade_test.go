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
type clientErrors struct{ all []error }

// Error implements proxy.ErrorResponder.
func (f *clientErrors) Error(_ http.ResponseWriter, _ *http.Request, err error) {
	f.all = append(f.all, err)
}

// client is the response writer of a client. Its connection can be hijacked if conn is set.
type client struct {
	*httptest.ResponseRecorder
	clientErrors
	conn net.Conn
	cut  any // value of the panic that aborted the response
	sent map[string]time.Time
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

// newProxy returns a Proxy whose backend calls say for each connection, after it has read the head
// of a request.
func newProxy(say func(conn net.Conn, read *bufio.Reader)) *upgrade.Proxy {
	return &upgrade.Proxy{
		URL: &url.URL{Scheme: "http", Host: "there", Path: "/x"}, Timeout: time.Minute,
		Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			go func() {
				defer there.Close()
				read := bufio.NewReader(there)
				if _, err := http.ReadRequest(read); err == nil {
					say(there, read)
				}
			}()
			return socket{here}, nil
		}},
	}
}

func says(text string) *upgrade.Proxy {
	return newProxy(func(conn net.Conn, _ *bufio.Reader) { _, _ = io.WriteString(conn, text) })
}

func (c *client) serve(ctx context.Context, y *upgrade.Proxy) (is *client) {
	is = c
	c.ResponseRecorder, c.sent = httptest.NewRecorder(), map[string]time.Time{}
	c.Header().Set("Audit-Id", "ours")
	c.Header().Set("X-Ours", "ours")
	defer func() { c.cut = recover() }()
	y.Errors = &c.clientErrors
	r := httptest.NewRequest("GET", "/y", nil).WithContext(ctx)
	r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"odd/1"}}
	y.Serve(c, r)
	return c
}

// result describes the outcome of a request.
func (c *client) result() string {
	if len(c.all) > 0 {
		return fmt.Sprint(c.all)
	}
	return fmt.Sprintf("%d %s %v", c.Code, c.Body, c.cut)
}

// TestRejectedUpgradeIsForwarded covers valid and invalid rejections.
func TestRejectedUpgradeIsForwarded(t *testing.T) {
	long := strings.Repeat("x", 8<<10) // longer than one read
	for say, want := range map[string]string{
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
			c := new(client).serve(t.Context(), says(say))
			if got := c.result(); got != want {
				t.Errorf("%.60q: got %q, want %q", say, got, want)
			}
			if h := c.Result().Header; len(c.all) == 0 && (h.Get("Connection") != "close" || h.Get("Audit-Id") != "ours" || h.Get("X-Ours") != "") {
				t.Errorf("%.60q: got headers %v, want Connection close, Audit-Id ours, no X-Ours", say, h)
			}
		})
	}
}

// TestRejectionKeepsHTTP2Connection checks that a rejection ends only its stream.
func TestRejectionKeepsHTTP2Connection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &client{ResponseRecorder: httptest.NewRecorder(), sent: map[string]time.Time{}}
		r := httptest.NewRequest("GET", "/y", nil)
		r.ProtoMajor = 2
		says("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno").Serve(c, r)
		if c.result() != "403 no <nil>" || c.Header().Get("Connection") != "" {
			t.Errorf("got %s, headers %v, want 403 without Connection", c.result(), c.Header())
		}
	})
}

// TestUnreachableBackend covers failed connections and connections that the backend closes.
func TestUnreachableBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := says("")
		y.Transport.DialContext = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("unreachable") }
		if got := new(client).serve(t.Context(), y).result(); got != "[error dialing backend: unreachable]" {
			t.Error(got)
		}
		y.Transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			there.Close()
			return socket{here}, nil
		}
		if got := new(client).serve(t.Context(), y).result(); got != "[error sending request: io: read/write on closed pipe]" {
			t.Error(got)
		}
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
		begin := time.Now()
		if got := strings.Replace(new(client).serve(t.Context(), newProxy(silent)).result(), "Timeout: ", "", 1); got != late || time.Since(begin) != time.Minute {
			t.Errorf("got %s after %v, want %s after 1m0s", got, time.Since(begin), late)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		if got := new(client).serve(ctx, newProxy(silent)).result(); got != "[io: read/write on closed pipe]" || time.Since(begin) != time.Second {
			t.Errorf("got %s after %v", got, time.Since(begin))
		}
	})
	synctest.Test(t, func(t *testing.T) { // a request that has ended did not time out
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		y := says("")
		y.Transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			time.Sleep(2 * y.Timeout)
			return nil, errors.New("unreachable")
		}
		if got := new(client).serve(ctx, y).result(); got != "[error dialing backend: unreachable]" {
			t.Error(got)
		}
	})
}

// TestRejectionIsStreamed checks that parts are flushed, and that an incomplete rejection is
// aborted after a timeout.
func TestRejectionIsStreamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		c := new(client).serve(t.Context(), newProxy(func(conn net.Conn, _ *bufio.Reader) {
			_, _ = io.WriteString(conn, "HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\nno")
			_, _ = io.Copy(io.Discard, conn)
		}))
		if at, sent := c.sent["no"]; !sent || at != begin {
			t.Errorf("first part sent: %v, after %v; want at once", sent, at.Sub(begin))
		}
		if c.cut != http.ErrAbortHandler || time.Since(begin) != 10*time.Second {
			t.Errorf("got panic %v after %v, want ErrAbortHandler after 10 s", c.cut, time.Since(begin))
		}
	})
}

const agrees = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: odd/1\r\n"

// echo upgrades the connection and sends its input back.
func echo(conn net.Conn, read *bufio.Reader) {
	_, _ = io.WriteString(conn, agrees+"\r\n")
	_, _ = io.Copy(conn, read)
}

// TestSwitchingProtocolsIsForwardedUnchanged checks that only the headers of this server are
// removed.
func TestSwitchingProtocolsIsForwardedUnchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		go (&client{conn: there}).serve(t.Context(), says(agrees+"x-odd-CASE:  kept \r\n folded\r\nAudit-Id:\r\n theirs\r\n\ttheirs\r\n\r\nfirst"))
		text, _ := io.ReadAll(here)
		if want := agrees + "x-odd-CASE:  kept \r\n folded\r\n\r\nfirst"; string(text) != want {
			t.Errorf("got %q, want %q", text, want)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		if got := new(client).serve(t.Context(), newProxy(echo)).result(); got != "[error hijacking connection: feature not supported]" {
			t.Error(got)
		}
	})
}

// TestUpgradedConnectionEndsWithRequestOrLife checks the lifetime of spliced connections.
func TestUpgradedConnectionEndsWithRequestOrLife(t *testing.T) {
	for _, lasts := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, end := context.WithCancel(t.Context())
			defer end()
			life, die := context.WithCancel(t.Context())
			defer die()
			here, there := net.Pipe()
			y := newProxy(echo)
			var agreed []bool
			y.OnResponse = func(is bool) { agreed = append(agreed, is) }
			if lasts {
				y.Lifetime = life
			}
			go (&client{conn: there}).serve(ctx, y)
			read := bufio.NewReader(here)
			if resp, err := http.ReadResponse(read, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("%v %v", resp, err)
			}
			echoes := func() bool {
				if _, err := io.WriteString(here, "hello\n"); err != nil {
					return false
				}
				line, _ := read.ReadString('\n')
				return line == "hello\n"
			}
			if !echoes() || len(agreed) != 1 || !agreed[0] {
				t.Errorf("got upgrades %v, want one and an echo", agreed)
			}
			end()
			synctest.Wait()
			if echoes() != lasts {
				t.Errorf("after the request: got an echo: %t, want %t", !lasts, lasts)
			}
			die()
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
		ctx, end := context.WithCancel(t.Context())
		here, there := net.Pipe()
		y := newProxy(echo)
		y.OnResponse = func(bool) { end() }
		y.Lifetime = t.Context()
		go (&client{conn: there}).serve(ctx, y)
		if text, err := io.ReadAll(here); err != nil || len(text) > 0 {
			t.Errorf("got %q, %v", text, err)
		}
	})
}
