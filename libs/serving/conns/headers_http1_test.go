package conns

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"binnacle/libs/limit"
)

// http1Server is an HTTP/1 server that responds with the number of header fields and body bytes.
type http1Server struct {
	t        *testing.T
	limits   *HeaderLimits
	listener *pipeListener
	release  chan struct{} // closing it lets requests for /quiet continue
}

// http1Client is a client of http1Server.
type http1Client struct {
	*tls.Conn
	t      *testing.T
	reader *bufio.Reader
}

// testHTTP1 runs test in a synctest bubble with a server that reserves memory for header sections
// and bodies.
func testHTTP1(t *testing.T, test func(*http1Server)) {
	testHandshakes(t, func(t *testing.T, l *pipeListener, listener *Listener) {
		listener.config.NextProtos = []string{"http/1.1"}
		listener.headers = NewHeaderLimits(1)
		started := &http1Server{t, listener.headers, l, make(chan struct{})}
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			end, err := started.limits.Reserve(r)
			defer end()
			if err != nil {
				w.Header().Set("Connection", "close")
				http.Error(w, err.Error(), http.StatusTooManyRequests)
				return
			}
			if r.URL.Path == "/quiet" {
				<-started.release
			}
			n, err := io.Copy(io.Discard, r.Body)
			if r.TLS == nil || err != nil {
				w.WriteHeader(http.StatusBadRequest)
			}
			_, _ = fmt.Fprint(w, len(r.Header), " ", n)
		})
		server := &http.Server{
			Handler:           handler,
			MaxHeaderBytes:    DefaultMaxBytes,
			ReadHeaderTimeout: 32 * time.Second,
			ErrorLog:          log.New(io.Discard, "", 0),
			ConnState: func(c net.Conn, s http.ConnState) {
				if s == http.StateIdle {
					Idle(c)
				}
			},
			ConnContext: WithConn, DisableGeneralOptionsHandler: true,
		}
		over := make(chan error, 1)
		go func() { over <- server.Serve(listener) }()
		test(started)
		synctest.Wait()
		if started.limits.reserved != 0 || len(started.limits.byAddress) > 0 || started.limits.limiter.InUse() != 0 {
			t.Errorf("at the end: got %d reserved bytes, by address %v, %d permits in use, want none",
				started.limits.reserved, started.limits.byAddress, started.limits.limiter.InUse())
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-over; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

func (f *http1Server) connect() *http1Client {
	c := tls.Client(f.listener.dial(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	return &http1Client{c, f.t, bufio.NewReader(c)}
}

func (c *http1Client) send(text string) { go func() { _, _ = io.WriteString(c, text) }() }

// expect reads a response and compares it.
func (c *http1Client) expect(code int, text string) {
	c.t.Helper()
	resp, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if resp.StatusCode != code || err != nil || !strings.HasPrefix(string(body), text) {
		c.t.Errorf("%d %.60q, %v; want %d %q", resp.StatusCode, body, err, code, text)
	}
}

// close closes the connection.
func (c *http1Client) close() { _ = c.NetConn().Close() }

// headerLines returns n header fields with values of the given size.
func headerLines(count, size int) string {
	var b strings.Builder
	for i := range count {
		fmt.Fprintf(&b, "H%d:%s\r\n", i, strings.Repeat("x", size))
	}
	return b.String()
}

const getLine, postLine, endOfHeader = "GET / HTTP/1.1\r\nHost: a\r\n", "POST / HTTP/1.1\r\nHost: a\r\n", "\r\n"

// TestHTTP1HeaderLimits checks that header sections with too many lines or bytes get 431, and that
// bodies and pipelined requests do not count as header lines.
func TestHTTP1HeaderLimits(t *testing.T) {
	empty := strings.Repeat("\r\n\n", 40_000) // a body, not header lines
	complete := func(body string) string {
		return fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", postLine, len(body), body)
	}
	for name, test := range map[string]struct {
		sent string
		want []string // "431" or the response body
	}{
		"small":                      {sent: getLine + endOfHeader, want: []string{"0 0"}},
		"one long line":              {sent: getLine + headerLines(1, 1_000_000) + endOfHeader, want: []string{"1 0"}},
		"many lines":                 {sent: getLine + headerLines(9_000, 10) + endOfHeader, want: []string{"9000 0"}},
		"too many lines":             {sent: getLine + headerLines(11_000, 1) + endOfHeader, want: []string{"431"}},
		"too many lines, unfinished": {sent: getLine + headerLines(11_000, 1), want: []string{"431"}},
		"too many bytes":             {sent: getLine + headerLines(20, 60_000) + endOfHeader, want: []string{"431"}},
		"many lines, body, more requests": {
			sent: postLine + headerLines(2_000,
				10) + "Content-Length: 10\r\n\r\n" + "0123456789" + getLine + headerLines(3_000,
				5) + endOfHeader + getLine + endOfHeader,
			want: []string{"2001 10", "3000 0", "0 0"},
		},
		"a body of empty lines": {sent: complete(empty) + getLine + headerLines(2_000, 10) + endOfHeader,
			want: []string{fmt.Sprint("1 ", len(empty)), "2000 0"}},
		"empty lines before the request": {
			sent: complete("x") + endOfHeader + endOfHeader + getLine + headerLines(11_000, 1) + endOfHeader,
			want: []string{"1 1", "431"},
		},
		"chunked body": {
			sent: postLine + "Transfer-Encoding: chunked\r\n" + headerLines(1_000,
				10) + "\r\n3\r\nabc\r\n0\r\n\r\n" + getLine + endOfHeader,
			want: []string{"1000 3", "0 0"},
		},
		"pipelined large headers": {
			sent: getLine + headerLines(1, 300_000) + endOfHeader + getLine + headerLines(9_000,
				5) + endOfHeader + getLine + headerLines(2_000, 5) + endOfHeader + getLine + endOfHeader,
			want: []string{"1 0", "9000 0", "2000 0", "0 0"},
		},
		"pipelined large headers, too many lines": {
			sent: getLine + headerLines(1, 300_000) + endOfHeader + getLine + headerLines(11_000, 5) + endOfHeader,
			want: []string{"1 0", "431"},
		},
		"pipelined requests, last has too many lines": {
			sent: strings.Repeat(getLine+endOfHeader, 50) + getLine + headerLines(11_000, 1) + endOfHeader,
			want: append(strings.Split(strings.Repeat("0 0,", 50), ",")[:50], "431"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			testHTTP1(t, func(f *http1Server) {
				client := f.connect()
				defer client.close()
				client.send(test.sent)
				for _, want := range test.want {
					if want == "431" {
						client.expect(http.StatusRequestHeaderFieldsTooLarge, "431 Request Header Fields Too Large")
						continue
					}
					client.expect(http.StatusOK, want)
				}
			})
		})
	}
}

// TestHTTP1LargeHeadersWaitForPermit checks that only complete large header sections wait for a
// permit, and that the permit is released after the header section.
func TestHTTP1LargeHeadersWaitForPermit(t *testing.T) {
	testHTTP1(t, func(f *http1Server) {
		if err := f.limits.limiter.Acquire(t.Context(), limit.Claim[string]{}); err != nil {
			t.Fatal(err)
		}
		large, small, half := f.connect(), f.connect(), f.connect()
		large.send(getLine + headerLines(1_000, 10) + endOfHeader)
		half.send(getLine + headerLines(1_000, 10))
		synctest.Wait()
		small.send(getLine + endOfHeader)
		small.expect(http.StatusOK, "0 0")
		f.limits.limiter.Release(limit.Claim[string]{})
		large.expect(http.StatusOK, "1000 0")
		half.send(endOfHeader)
		half.expect(http.StatusOK, "1000 0")
		large.close()
		small.close()
		half.close()
	})
}

// TestHeaderReservationsPerAddress checks that an address can reserve a minimum even if the total
// is used up.
func TestHeaderReservationsPerAddress(t *testing.T) {
	headerLimits := NewHeaderLimits(1)
	firstAddress, otherAddress, late := "10.0.0.1", "10.0.0.2", "10.0.0.3"
	for _, from := range []string{firstAddress, otherAddress} {
		if !headerLimits.reserveBytes(from, MaxReservedHeaders/2) {
			t.Errorf("%v: got half of the total rejected, want it reserved", from)
		}
		if headerLimits.reserveBytes(from, 1) {
			t.Errorf("%v: got more than half of the total reserved, want it rejected", from)
		}
	}
	if !headerLimits.reserveBytes(late, minReservedHeaders) {
		t.Errorf("%v: got the minimum rejected, want it reserved", late)
	}
	if headerLimits.reserveBytes(late, 1) {
		t.Errorf("%v: got more than the minimum reserved, want it rejected", late)
	}
	if !headerLimits.reserveBytes(firstAddress, -1) || headerLimits.reserved != MaxReservedHeaders+minReservedHeaders-1 {
		t.Errorf("after the release of a byte: %d bytes are reserved, want %d",
			headerLimits.reserved, MaxReservedHeaders+minReservedHeaders-1)
	}
	for from, n := range map[string]int{firstAddress: MaxReservedHeaders/2 - 1, otherAddress: MaxReservedHeaders / 2, late: minReservedHeaders} {
		headerLimits.reserveBytes(from, -n)
	}
	if headerLimits.reserved != 0 || len(headerLimits.byAddress) > 0 {
		t.Errorf("at the end: got %d reserved bytes, by address %v, want none", headerLimits.reserved, headerLimits.byAddress)
	}
}

// TestUnfinishedHeadersAreLimitedAndReleased checks that unfinished header sections reserve a
// limited number of bytes, which are released when the connections close.
func TestUnfinishedHeadersAreLimitedAndReleased(t *testing.T) {
	testHTTP1(t, func(server *http1Server) {
		var all []*http1Client
		for range 20 { // over 1 MiB each, because buffers double
			c := server.connect()
			c.send(getLine + headerLines(1, 900_000))
			all = append(all, c)
			time.Sleep(10 * time.Millisecond) // in synctest time, because large reads yield
			synctest.Wait()
		}
		if server.limits.reserved > MaxReservedHeaders/2 || server.limits.reserved < MaxReservedHeaders/8 {
			t.Errorf("%d bytes are reserved for one address, want at most %v and at least %v", server.limits.reserved,
				MaxReservedHeaders/2, MaxReservedHeaders/8)
		}
		remaining := MaxReservedHeaders/2 - server.limits.reserved
		if !server.limits.reserveBytes(Network(netip.Addr{}), remaining) {
			t.Fatalf("reserveBytes(%d) of the rest = false, want true", remaining)
		}
		c := server.connect()
		c.send(getLine + headerLines(1, 900_000))
		c.expect(http.StatusRequestHeaderFieldsTooLarge, "")
		c.close()
		small := server.connect()
		small.send(getLine + endOfHeader)
		small.expect(http.StatusOK, "0 0")
		small.close()
		server.limits.reserveBytes(Network(netip.Addr{}), -remaining)
		for _, c := range all[:10] {
			c.close()
		}
		time.Sleep(32 * time.Second) // the other connections time out
		for _, c := range all[10:] {
			c.close()
		}
	})
}

// TestLargeHeaderMemoryIsReleased checks that idle connections keep no memory of large header
// sections.
func TestLargeHeaderMemoryIsReleased(t *testing.T) {
	const size, conns = 900_000, 12
	heap := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	for name, after := range map[string]string{"alone": "", "followed by another request": getLine + endOfHeader} {
		t.Run(name, func(t *testing.T) {
			testHTTP1(t, func(f *http1Server) {
				text := getLine + headerLines(1, size) + endOfHeader + after
				before := heap()
				for range conns {
					http1Client := f.connect()
					defer http1Client.close()
					http1Client.send(text)
					http1Client.expect(http.StatusOK, "1 0")
					if after != "" {
						http1Client.expect(http.StatusOK, "0 0")
					}
				}
				if more := heap() - before; more > conns*size/4 {
					t.Errorf("%d bytes are retained by %d connections, want at most %v", more, conns, conns*size/4)
				}
			})
		})
	}
}

// TestHeaderPermitIsReleasedBeforeResponse checks that no permit is held while a response is
// written.
func TestHeaderPermitIsReleasedBeforeResponse(t *testing.T) {
	testHTTP1(t, func(f *http1Server) {
		malformed, valid := f.connect(), f.connect()
		malformed.send("GET / HTTP/1.1\r\n" + headerLines(1, 2*largeHeader) + endOfHeader) // no Host field, which is rejected
		time.Sleep(10 * time.Millisecond)                                                  // because large reads yield
		synctest.Wait()
		if n := 1 - f.limits.limiter.InUse(); n != 1 {
			t.Errorf("%d permits are free while a client reads no response, want 1", n)
		}
		valid.send(getLine + headerLines(1, 2*largeHeader) + endOfHeader)
		valid.expect(http.StatusOK, "1 0")
		malformed.close()
		valid.close()
	})
}

// TestHeaderPermitIsReleasedBeforeHandler checks that no permit is held while a handler runs.
func TestHeaderPermitIsReleasedBeforeHandler(t *testing.T) {
	testHTTP1(t, func(f *http1Server) {
		http1Client := f.connect()
		http1Client.send("POST /quiet HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n" + headerLines(1, 2*largeHeader) + endOfHeader)
		time.Sleep(10 * time.Millisecond) // because large reads yield
		synctest.Wait()
		if n := 1 - f.limits.limiter.InUse(); n != 1 {
			t.Errorf("%d permits are free while a handler waits, want 1", n)
		}
		close(f.release)
		http1Client.send("x")
		http1Client.expect(http.StatusOK, "2 1")
		http1Client.close()
	})
}

// TestIdleConnectionReservesNothing checks that the bytes of a large header section are released
// after the response.
func TestIdleConnectionReservesNothing(t *testing.T) {
	testHTTP1(t, func(f *http1Server) {
		http1Client := f.connect()
		http1Client.send(getLine + headerLines(1, 900_000) + endOfHeader)
		http1Client.expect(http.StatusOK, "1 0")
		synctest.Wait()
		if f.limits.reserved != 0 {
			t.Errorf("an idle connection reserves %d bytes, want 0", f.limits.reserved)
		}
		http1Client.close()
	})
}

// TestEmptyLinesBeforeRequestAreNotCounted checks that empty lines before a request are not part of
// its header section.
func TestEmptyLinesBeforeRequestAreNotCounted(t *testing.T) {
	testHTTP1(t, func(f *http1Server) {
		http1Client := f.connect()
		http1Client.send(postLine + "Content-Length: 1\r\n\r\nx")
		http1Client.expect(http.StatusOK, "1 1")
		synctest.Wait()
		http1Client.send(endOfHeader + endOfHeader + getLine + headerLines(11_000, 1) + endOfHeader)
		http1Client.expect(http.StatusRequestHeaderFieldsTooLarge, "")
		http1Client.close()
	})
}

// TestRejectedHeaderIsDrainedBriefly checks that the server reads on after a rejection. Otherwise
// the connection would be reset and the client would lose the response.
func TestRejectedHeaderIsDrainedBriefly(t *testing.T) {
	testHTTP1(t, func(f *http1Server) {
		http1Client := f.connect()
		http1Client.send(getLine + headerLines(11_000, 1))
		http1Client.expect(http.StatusRequestHeaderFieldsTooLarge, "431")
		start := time.Now()
		for n := 0; ; n++ {
			_, err := io.WriteString(http1Client, headerLines(1, 100))
			if err == nil {
				time.Sleep(rejectLinger / 10)
				continue
			}
			if n == 0 || time.Since(start) > 2*rejectLinger {
				t.Errorf("got the connection ended after %d more lines and %v (%v), want at least one line, and at most %v", n, time.Since(start), err, 2*rejectLinger)
			}
			break
		}
		http1Client.close()
	})
}

// TestLargeHeadersInFlightAreLimited checks that requests with large header sections that are in
// flight reserve a limited number of bytes.
func TestLargeHeadersInFlightAreLimited(t *testing.T) {
	const size, conns = 900_000, 50
	long := map[string]string{
		"fields":  postLine + headerLines(1, size) + "Content-Length: 1\r\n" + endOfHeader,
		"a query": "POST /?" + strings.Repeat("x", size) + " HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n" + endOfHeader,
		"lines":   postLine + headerLines(9_000, 40) + "Content-Length: 1\r\n" + endOfHeader,
	}
	for name, text := range long {
		t.Run(name, func(t *testing.T) {
			testHTTP1(t, func(server *http1Server) {
				var all []*http1Client
				for range conns {
					c := server.connect()
					c.send(text)
					all = append(all, c)
					time.Sleep(100 * time.Millisecond) // because large reads yield
					synctest.Wait()
				}
				if server.limits.reserved > MaxReservedHeaders/2 || server.limits.reserved < MaxReservedHeaders/2-2*size {
					t.Errorf("%d bytes are reserved for one address, want at most %v and at least %v",
						server.limits.reserved, MaxReservedHeaders/2, MaxReservedHeaders/2-2*size)
				}
				small := server.connect()
				small.send(getLine + endOfHeader)
				small.expect(http.StatusOK, "0 0")
				small.close()
				last := all[conns-1] // rejected when read or when handled
				if resp, err := http.ReadResponse(last.reader, nil); err != nil ||
					resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge && resp.StatusCode != http.StatusTooManyRequests {
					t.Errorf("last request: got %v, %v, want status 431 or 429", resp, err)
				}
				last.close()
				for _, c := range all[:5] {
					c.send("x")
					c.expect(http.StatusOK, "")
					c.close()
				}
				synctest.Wait()
				late := server.connect()
				late.send(text + "x")
				late.expect(http.StatusOK, "")
				late.close()
				for _, c := range all {
					c.close()
				}
			})
		})
	}
}

// bufferedConn is a connection whose writes can be held and sent together.
type bufferedConn struct {
	net.Conn
	holding bool
	held    []byte
}

func (b *bufferedConn) Write(data []byte) (int, error) {
	if !b.holding {
		return b.Conn.Write(data)
	}
	b.held = append(b.held, data...)
	return len(data), nil
}

// SetWriteDeadline does nothing. tls.Conn sets a past deadline when it closes.
func (b *bufferedConn) SetWriteDeadline(time.Time) error { return nil }

// TestLargeHeaderFollowedByEOFIsServed checks that a request is served if the end of the stream
// arrives together with it.
func TestLargeHeaderFollowedByEOFIsServed(t *testing.T) {
	testHTTP1(t, func(f *http1Server) {
		conn := &bufferedConn{Conn: f.listener.dial()}
		client := &http1Client{tls.Client(conn, &tls.Config{
			InsecureSkipVerify: true,
			NextProtos:         []string{"http/1.1"},
			MaxVersion:         tls.VersionTLS12,
		}), t, nil} // TLS 1.3 sends the close_notify in a separate write
		if err := client.Handshake(); err != nil {
			t.Fatal(err)
		}
		conn.holding = true
		_, err := io.WriteString(client, getLine+headerLines(1, 3*largeHeader/2)+endOfHeader)
		if err := errors.Join(err, client.CloseWrite()); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = conn.Conn.Write(conn.held) }()
		client.reader = bufio.NewReader(client)
		client.expect(http.StatusOK, "1 0")
		client.close()
	})
}
