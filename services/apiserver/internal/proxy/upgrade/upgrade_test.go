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

// failures are what the client would be told of.
type failures struct{ all []error }

// Error implements proxy.ErrorResponder.
func (f *failures) Error(_ http.ResponseWriter, _ *http.Request, err error) {
	f.all = append(f.all, err)
}

// client has the answer, and its connection where that can be taken over.
type client struct {
	*httptest.ResponseRecorder
	failures
	conn net.Conn
	cut  any // what the answer was cut with
	sent map[string]time.Time
}

// Flush notes when there was so much.
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

// socket bears deadlines when the other side has closed it, as those of the system do.
type socket struct{ net.Conn }

func (s socket) SetDeadline(at time.Time) error {
	_ = s.Conn.SetDeadline(at)
	return nil
}

func (s socket) SetReadDeadline(at time.Time) error { return s.SetDeadline(at) }

// way leads to who is given each connection once the head of a request has been read.
func way(say func(conn net.Conn, read *bufio.Reader)) *upgrade.Way {
	return &upgrade.Way{
		At: &url.URL{Scheme: "http", Host: "there", Path: "/x"}, Within: time.Minute,
		Connections: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
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

func says(text string) *upgrade.Way {
	return way(func(conn net.Conn, _ *bufio.Reader) { _, _ = io.WriteString(conn, text) })
}

func (c *client) carry(ctx context.Context, y *upgrade.Way) (is *client) {
	is = c
	c.ResponseRecorder, c.sent = httptest.NewRecorder(), map[string]time.Time{}
	c.Header().Set("Audit-Id", "ours")
	c.Header().Set("X-Ours", "ours")
	defer func() { c.cut = recover() }()
	y.Errors = &c.failures
	r := httptest.NewRequest("GET", "/y", nil).WithContext(ctx)
	r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"odd/1"}}
	y.Carry(c, r)
	return c
}

// told is all that has become of a request.
func (c *client) told() string {
	if len(c.all) > 0 {
		return fmt.Sprint(c.all)
	}
	return fmt.Sprintf("%d %s %v", c.Code, c.Body, c.cut)
}

// TestAnswers that are no agreement.
func TestAnswers(t *testing.T) {
	long := strings.Repeat("x", 8<<10) // longer than what is read at a time
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
		"HTTP/1.1 403 Forbidden\r\nX: " + strings.Repeat("x", responselimit.MaxHead):                "[the headers of the answer are too long]",
		"HTTP/1.1 403 Forbidden\r\n" + strings.Repeat("X:\r\n", responselimit.MaxFields+1) + "\r\n": "[the headers of the answer are too long]",
		"HTTP/1.1 403 Forbidden\r\n" + strings.Repeat("X:\r\n", responselimit.MaxFields-1) + "\r\n": "403  <nil>",
	} {
		synctest.Test(t, func(t *testing.T) {
			c := new(client).carry(t.Context(), says(say))
			if got := c.told(); got != want {
				t.Errorf("%.60q: %q, want %q", say, got, want)
			}
			if h := c.Result().Header; len(c.all) == 0 && (h.Get("Connection") != "close" || h.Get("Audit-Id") != "ours" || h.Get("X-Ours") != "") {
				t.Errorf("%.60q: %v", say, h)
			}
		})
	}
}

// TestRefusalsOfHTTP2 end nothing but their stream.
func TestRefusalsOfHTTP2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &client{ResponseRecorder: httptest.NewRecorder(), sent: map[string]time.Time{}}
		r := httptest.NewRequest("GET", "/y", nil)
		r.ProtoMajor = 2
		says("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno").Carry(c, r)
		if c.told() != "403 no <nil>" || c.Header().Get("Connection") != "" {
			t.Errorf("%s %v", c.told(), c.Header())
		}
	})
}

// TestNobodyIsThere: who cannot be asked, or goes before he is.
func TestNobodyIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := says("")
		y.Connections.DialContext = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("nobody") }
		if got := new(client).carry(t.Context(), y).told(); got != "[error dialing backend: nobody]" {
			t.Error(got)
		}
		y.Connections.DialContext = func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			there.Close()
			return socket{here}, nil
		}
		if got := new(client).carry(t.Context(), y).told(); got != "[error sending request: io: read/write on closed pipe]" {
			t.Error(got)
		}
	})
}

// TestSilence is borne for a time, and no longer than the request.
func TestSilence(t *testing.T) {
	silent := func(conn net.Conn, _ *bufio.Reader) {
		_, _ = io.WriteString(conn, "HTTP/1.1 403 Forb")
		_, _ = io.Copy(io.Discard, conn)
	}
	const late = "[the server that was asked to upgrade the connection did not answer in time]"
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if got := strings.Replace(new(client).carry(t.Context(), way(silent)).told(), "Timeout: ", "", 1); got != late || time.Since(begin) != time.Minute {
			t.Errorf("%s after %v", got, time.Since(begin))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		if got := new(client).carry(ctx, way(silent)).told(); got != "[io: read/write on closed pipe]" || time.Since(begin) != time.Second {
			t.Errorf("%s after %v", got, time.Since(begin))
		}
	})
	synctest.Test(t, func(t *testing.T) { // a request that is over has not failed for its time
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		y := says("")
		y.Connections.DialContext = func(context.Context, string, string) (net.Conn, error) {
			time.Sleep(2 * y.Within)
			return nil, errors.New("nobody")
		}
		if got := new(client).carry(ctx, y).told(); got != "[error dialing backend: nobody]" {
			t.Error(got)
		}
	})
}

// TestRefusalsComeAsTheyAreSaid, and are waited for only so long.
func TestRefusalsComeAsTheyAreSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		c := new(client).carry(t.Context(), way(func(conn net.Conn, _ *bufio.Reader) {
			_, _ = io.WriteString(conn, "HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\nno")
			_, _ = io.Copy(io.Discard, conn)
		}))
		if at, sent := c.sent["no"]; !sent || at != begin {
			t.Errorf("what was said is sent: %v, after %v", sent, at.Sub(begin))
		}
		if c.cut != http.ErrAbortHandler || time.Since(begin) != 10*time.Second {
			t.Errorf("%v after %v", c.cut, time.Since(begin))
		}
	})
}

const agrees = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: odd/1\r\n"

// echo agrees, and says what it hears.
func echo(conn net.Conn, read *bufio.Reader) {
	_, _ = io.WriteString(conn, agrees+"\r\n")
	_, _ = io.Copy(conn, read)
}

// TestAgreements go to the client as they are, but for what only this server says.
func TestAgreements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		go (&client{conn: there}).carry(t.Context(), says(agrees+"x-odd-CASE:  kept \r\n folded\r\nAudit-Id:\r\n theirs\r\n\ttheirs\r\n\r\nfirst"))
		text, _ := io.ReadAll(here)
		if want := agrees + "x-odd-CASE:  kept \r\n folded\r\n\r\nfirst"; string(text) != want {
			t.Errorf("%q, want %q", text, want)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		if got := new(client).carry(t.Context(), way(echo)).told(); got != "[error hijacking connection: feature not supported]" {
			t.Error(got)
		}
	})
}

// TestLives: what is joined ends with its request, or with the life that it has been given.
func TestLives(t *testing.T) {
	for _, lasts := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, end := context.WithCancel(t.Context())
			defer end()
			life, die := context.WithCancel(t.Context())
			defer die()
			here, there := net.Pipe()
			y := way(echo)
			var agreed []bool
			y.Answered = func(is bool) { agreed = append(agreed, is) }
			if lasts {
				y.Life = life
			}
			go (&client{conn: there}).carry(ctx, y)
			read := bufio.NewReader(here)
			if resp, err := http.ReadResponse(read, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("%v %v", resp, err)
			}
			hears := func() bool {
				if _, err := io.WriteString(here, "hello\n"); err != nil {
					return false
				}
				line, _ := read.ReadString('\n')
				return line == "hello\n"
			}
			if !hears() || len(agreed) != 1 || !agreed[0] {
				t.Errorf("nobody hears: %v", agreed)
			}
			end()
			synctest.Wait()
			if hears() != lasts {
				t.Errorf("after the request: %v", !lasts)
			}
			die()
			synctest.Wait()
			if hears() {
				t.Error("after the end")
			}
		})
	}
}

// TestLateAgreements: a request that ends as the other side agrees is joined to nobody.
func TestLateAgreements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		here, there := net.Pipe()
		y := way(echo)
		y.Answered = func(bool) { end() }
		y.Life = t.Context()
		go (&client{conn: there}).carry(ctx, y)
		if text, err := io.ReadAll(here); err != nil || len(text) > 0 {
			t.Errorf("%q %v", text, err)
		}
	})
}
