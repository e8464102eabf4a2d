package serving

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

	"github.com/prometheus/client_golang/prometheus"
)

// first is a server of HTTP/1 that echoes how much it was told.
type first struct {
	t     *testing.T
	heads *heads
	l     *piped
	quiet chan struct{} // until it is closed, who asks for /quiet is not answered, nor read
}

// talker is a client of it.
type talker struct {
	*tls.Conn
	t *testing.T
	r *bufio.Reader
}

func serveFirst(t *testing.T, test func(*first)) {
	greeted(t, func(t *testing.T, l *piped, h *handshakes) {
		h.config.NextProtos = []string{"http/1.1"}
		h.heads = newHeads(1)
		counts, err := newStallMetrics(prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		f := &first{t, h.heads, l, make(chan struct{})}
		g := newGate(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/quiet" {
				<-f.quiet
			}
			n, err := io.Copy(io.Discard, r.Body)
			if r.TLS == nil || err != nil {
				w.WriteHeader(http.StatusBadRequest)
			}
			_, _ = fmt.Fprint(w, len(r.Header), " ", n)
		}), nil, false, &limits{stall: time.Minute, metrics: counts, heads: h.heads})
		server := &http.Server{
			Handler: g, MaxHeaderBytes: maxHeaderBytes, ReadHeaderTimeout: readHeaderTimeout, ErrorLog: log.New(io.Discard, "", 0),
			ConnState: (&Server{active: newActiveConns()}).connState, ConnContext: (&Server{}).connContext, DisableGeneralOptionsHandler: true,
		}
		over := make(chan error, 1)
		go func() { over <- server.Serve(h) }()
		test(f)
		synctest.Wait()
		if f.heads.kept != 0 || len(f.heads.by) > 0 || f.heads.turns.free != 1 {
			t.Errorf("at the end %d bytes are kept, %v, and %d turns are free", f.heads.kept, f.heads.by, f.heads.turns.free)
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-over; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

func (f *first) connect() *talker {
	c := tls.Client(f.l.dial(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	return &talker{c, f.t, bufio.NewReader(c)}
}

func (c *talker) say(text string) { go func() { _, _ = io.WriteString(c, text) }() }

// hears reads an answer.
func (c *talker) hears(code int, text string) {
	c.t.Helper()
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if resp.StatusCode != code || err != nil || !strings.HasPrefix(string(body), text) {
		c.t.Errorf("%d %.60q, %v; want %d %q", resp.StatusCode, body, err, code, text)
	}
}

// bye closes the connection.
func (c *talker) bye() { _ = c.NetConn().Close() }

// lines are n header fields.
func lines(n, size int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "H%d:%s\r\n", i, strings.Repeat("x", size))
	}
	return b.String()
}

const get, post, stop = "GET / HTTP/1.1\r\nHost: a\r\n", "POST / HTTP/1.1\r\nHost: a\r\n", "\r\n"

func TestHeadsAreBounded(t *testing.T) {
	empty := strings.Repeat("\r\n\n", 40_000) // of a body, that is no header
	whole := func(body string) string { return fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", post, len(body), body) }
	for name, c := range map[string]struct {
		say  string
		want []string // "431" or what is told
	}{
		"small":                           {get + stop, []string{"0 0"}},
		"one long line":                   {get + lines(1, 1_000_000) + stop, []string{"1 0"}},
		"many lines":                      {get + lines(9_000, 10) + stop, []string{"9000 0"}},
		"too many lines":                  {get + lines(11_000, 1) + stop, []string{"431"}},
		"too many that do not end":        {get + lines(11_000, 1), []string{"431"}},
		"too many bytes":                  {get + lines(20, 60_000) + stop, []string{"431"}},
		"many, then a body, then more":    {post + lines(2_000, 10) + "Content-Length: 10\r\n\r\n" + "0123456789" + get + lines(3_000, 5) + stop + get + stop, []string{"2001 10", "3000 0", "0 0"}},
		"a body of empty lines":           {whole(empty) + get + lines(2_000, 10) + stop, []string{fmt.Sprint("1 ", len(empty)), "2000 0"}},
		"empty lines before the first":    {whole("x") + stop + stop + get + lines(11_000, 1) + stop, []string{"1 1", "431"}},
		"in pieces that are not ours":     {post + "Transfer-Encoding: chunked\r\n" + lines(1_000, 10) + "\r\n3\r\nabc\r\n0\r\n\r\n" + get + stop, []string{"1000 3", "0 0"}},
		"large ones at once":              {get + lines(1, 300_000) + stop + get + lines(9_000, 5) + stop + get + lines(2_000, 5) + stop + get + stop, []string{"1 0", "9000 0", "2000 0", "0 0"}},
		"large ones at once, too many":    {get + lines(1, 300_000) + stop + get + lines(11_000, 5) + stop, []string{"1 0", "431"}},
		"many at once, the last too many": {strings.Repeat(get+stop, 50) + get + lines(11_000, 1) + stop, append(strings.Split(strings.Repeat("0 0,", 50), ",")[:50], "431")},
	} {
		t.Run(name, func(t *testing.T) {
			serveFirst(t, func(f *first) {
				client := f.connect()
				defer client.bye()
				client.say(c.say)
				for _, want := range c.want {
					if want == "431" {
						client.hears(http.StatusRequestHeaderFieldsTooLarge, "431 Request Header Fields Too Large")
						continue
					}
					client.hears(http.StatusOK, want)
				}
			})
		})
	}
}

// TestLargeHeadsTakeTurns over HTTP/1 as they do over HTTP/2: only who is whole waits for one, and
// nobody has it beyond his header section.
func TestLargeHeadsTakeTurns(t *testing.T) {
	serveFirst(t, func(f *first) {
		if err := f.heads.turns.enter(t.Context(), netip.Addr{}); err != nil {
			t.Fatal(err)
		}
		large, small, half := f.connect(), f.connect(), f.connect()
		large.say(get + lines(1_000, 10) + stop)
		half.say(get + lines(1_000, 10))
		synctest.Wait()
		if n := len(f.heads.turns.waiting[netip.Addr{}]); n != 1 {
			t.Errorf("%d wait for a turn, want the one that is whole", n)
		}
		small.say(get + stop)
		small.hears(http.StatusOK, "0 0")
		f.heads.turns.leave()
		large.hears(http.StatusOK, "1000 0")
		half.say(stop)
		half.hears(http.StatusOK, "1000 0")
		large.bye()
		small.bye()
		half.bye()
	})
}

// TestHeadsOfOthers: an address has a little room whatever others keep.
func TestHeadsOfOthers(t *testing.T) {
	h := newHeads(1)
	one, other, late := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")
	for _, from := range []netip.Addr{one, other} {
		if !h.keep(from, keptHeads/2) || h.keep(from, 1) {
			t.Errorf("%v may not keep its half, or more", from)
		}
	}
	if !h.keep(late, ownHeads) || h.keep(late, 1) {
		t.Error("another may not keep a little, or more")
	}
	if !h.keep(one, -1) || h.kept != keptHeads+ownHeads-1 {
		t.Error("what is given back while all is kept does not count")
	}
	for from, n := range map[netip.Addr]int{one: keptHeads/2 - 1, other: keptHeads / 2, late: ownHeads} {
		h.keep(from, -n)
	}
	if h.kept != 0 || len(h.by) > 0 {
		t.Errorf("%d bytes are kept at the end, %v", h.kept, h.by)
	}
}

// TestHeadsThatDoNotEnd take a bounded room together, which is there again when they are given up.
func TestHeadsThatDoNotEnd(t *testing.T) {
	serveFirst(t, func(f *first) {
		var all []*talker
		for range 20 { // a mebibyte and more each: buffers double
			c := f.connect()
			c.say(get + lines(1, 900_000))
			all = append(all, c)
			time.Sleep(10 * time.Millisecond) // of the test's own time, as who reads much rests
			synctest.Wait()
		}
		if f.heads.kept > keptHeads/2 || f.heads.kept < keptHeads/8 {
			t.Errorf("%d bytes are kept of one address", f.heads.kept)
		}
		rest := keptHeads/2 - f.heads.kept
		if !f.heads.keep(netip.Addr{}, rest) {
			t.Fatal("there is no room for the rest")
		}
		c := f.connect()
		c.say(get + lines(1, 900_000))
		c.hears(http.StatusRequestHeaderFieldsTooLarge, "")
		c.bye()
		small := f.connect()
		small.say(get + stop)
		small.hears(http.StatusOK, "0 0")
		small.bye()
		f.heads.keep(netip.Addr{}, -rest)
		for _, c := range all[:10] {
			c.bye()
		}
		time.Sleep(readHeaderTimeout) // the others are cut
		for _, c := range all[10:] {
			c.bye()
		}
	})
}

// TestNothingIsKeptOfLargeHeads once they are answered: connections last, and are many.
func TestNothingIsKeptOfLargeHeads(t *testing.T) {
	const size, conns = 900_000, 12
	heap := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	for name, after := range map[string]string{"alone": "", "with another after it": get + stop} {
		t.Run(name, func(t *testing.T) {
			serveFirst(t, func(f *first) {
				text := get + lines(1, size) + stop + after
				before := heap()
				for range conns {
					c := f.connect()
					defer c.bye()
					c.say(text)
					c.hears(http.StatusOK, "1 0")
					if after != "" {
						c.hears(http.StatusOK, "0 0")
					}
				}
				if more := heap() - before; more > conns*size/4 {
					t.Errorf("%d bytes are kept of %d connections", more, conns)
				}
			})
		})
	}
}

// TestWhoAnswersHasNoTurn: it may wait for its client.
func TestWhoAnswersHasNoTurn(t *testing.T) {
	serveFirst(t, func(f *first) {
		bad, good := f.connect(), f.connect()
		bad.say("GET / HTTP/1.1\r\n" + lines(1, 2*largeHead) + stop) // of no host, which is refused
		time.Sleep(10 * time.Millisecond)                            // as who reads much rests
		synctest.Wait()
		if n := f.heads.turns.free; n != 1 {
			t.Errorf("%d turns are free while a client reads no answer", n)
		}
		good.say(get + lines(1, 2*largeHead) + stop)
		good.hears(http.StatusOK, "1 0")
		bad.bye()
		good.bye()
	})
}

// TestWhoIsQuietHasNoTurn: a handler may wait for something else than its client.
func TestWhoIsQuietHasNoTurn(t *testing.T) {
	serveFirst(t, func(f *first) {
		c := f.connect()
		c.say("POST /quiet HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n" + lines(1, 2*largeHead) + stop)
		time.Sleep(10 * time.Millisecond) // as who reads much rests
		synctest.Wait()
		if n := f.heads.turns.free; n != 1 {
			t.Errorf("%d turns are free while a handler waits", n)
		}
		close(f.quiet)
		c.say("x")
		c.hears(http.StatusOK, "2 1")
		c.bye()
	})
}

// TestConnectionsKeepNoRoom once their large headers are answered.
func TestConnectionsKeepNoRoom(t *testing.T) {
	serveFirst(t, func(f *first) {
		c := f.connect()
		c.say(get + lines(1, 900_000) + stop)
		c.hears(http.StatusOK, "1 0")
		synctest.Wait()
		if f.heads.kept != 0 {
			t.Errorf("%d bytes are kept of a connection that rests", f.heads.kept)
		}
		c.bye()
	})
}

// TestLateEmptyLines: those that come before a request, by themselves, are none of it.
func TestLateEmptyLines(t *testing.T) {
	serveFirst(t, func(f *first) {
		c := f.connect()
		c.say(post + "Content-Length: 1\r\n\r\nx")
		c.hears(http.StatusOK, "1 1")
		synctest.Wait()
		c.say(stop + stop + get + lines(11_000, 1) + stop)
		c.hears(http.StatusRequestHeaderFieldsTooLarge, "")
		c.bye()
	})
}

// TestWhoSendsTooMuchIsReadForAWhile: else the answer would not arrive, as a connection that is closed
// while something comes is reset.
func TestWhoSendsTooMuchIsReadForAWhile(t *testing.T) {
	serveFirst(t, func(f *first) {
		c := f.connect()
		c.say(get + lines(11_000, 1))
		c.hears(http.StatusRequestHeaderFieldsTooLarge, "431")
		begin := time.Now()
		for n := 0; ; n++ {
			_, err := io.WriteString(c, lines(1, 100))
			if err == nil {
				time.Sleep(lingering / 10)
				continue
			}
			if n == 0 || time.Since(begin) > 2*lingering {
				t.Errorf("after %d more lines and %v: %v", n, time.Since(begin), err)
			}
			break
		}
		c.bye()
	})
}

// TestTheServersOptions are answered as net/http does, to who sends all of the request.
func TestTheServersOptions(t *testing.T) {
	const all = "OPTIONS * HTTP/1.1\r\nHost: a\r\n"
	serveFirst(t, func(f *first) {
		c := f.connect()
		c.say(all + stop + all + "Content-Length: 3\r\n\r\nabc" + get + stop + "OPTIONS / HTTP/1.1\r\nHost: a\r\n" + stop + "GET * HTTP/1.1\r\nHost: a\r\n" + stop)
		for i, want := range []string{"", "", "0 0", "0 0", "0 0"} {
			resp, err := http.ReadResponse(c.r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(resp.Body); string(body) != want || err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("the %d. answer is %d %q, %v; want %q", i+1, resp.StatusCode, body, err, want)
			}
		}
		c.bye()
		stalls := f.connect()
		stalls.say(all + "Content-Length: 100\r\n\r\n")
		begin := time.Now()
		if _, err := io.ReadAll(stalls.r); time.Since(begin) > 2*time.Minute {
			t.Errorf("who sends no body is kept for %v: %v", time.Since(begin), err)
		}
		stalls.bye()
	})
}

// TestLargeHeadsUnderWay: requests whose bodies do not come, or whose answers last, take a bounded room
// together, whatever their number.
func TestLargeHeadsUnderWay(t *testing.T) {
	const size, conns = 900_000, 50
	long := map[string]string{
		"fields":  post + lines(1, size) + "Content-Length: 1\r\n" + stop,
		"a query": "POST /?" + strings.Repeat("x", size) + " HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n" + stop,
		"lines":   post + lines(9_000, 40) + "Content-Length: 1\r\n" + stop,
	}
	for name, text := range long {
		t.Run(name, func(t *testing.T) {
			serveFirst(t, func(f *first) {
				var all []*talker
				for range conns {
					c := f.connect()
					c.say(text)
					all = append(all, c)
					time.Sleep(100 * time.Millisecond) // as who reads much rests
					synctest.Wait()
				}
				if f.heads.kept > keptHeads/2 || f.heads.kept < keptHeads/2-2*size {
					t.Errorf("%d bytes are kept of one address", f.heads.kept)
				}
				small := f.connect()
				small.say(get + stop)
				small.hears(http.StatusOK, "0 0")
				small.bye()
				last := all[conns-1] // which could not be read, or was
				if resp, err := http.ReadResponse(last.r, nil); err != nil || resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge && resp.StatusCode != http.StatusTooManyRequests {
					t.Errorf("the last of many is answered %v, %v", resp, err)
				}
				last.bye()
				for _, c := range all[:5] {
					c.say("x")
					c.hears(http.StatusOK, "")
					c.bye()
				}
				synctest.Wait()
				late := f.connect()
				late.say(text + "x")
				late.hears(http.StatusOK, "")
				late.bye()
				for _, c := range all {
					c.bye()
				}
			})
		})
	}
}

// bunched is a connection whose writes leave together once it is released.
type bunched struct {
	net.Conn
	holds bool
	held  []byte
}

func (b *bunched) Write(p []byte) (int, error) {
	if !b.holds {
		return b.Conn.Write(p)
	}
	b.held = append(b.held, p...)
	return len(p), nil
}

// SetWriteDeadline implements net.Conn; what says no more sets one that is over.
func (b *bunched) SetWriteDeadline(time.Time) error { return nil }

// TestWhoSaysNoMoreAfterALargeHead is answered, also when both come at once.
func TestWhoSaysNoMoreAfterALargeHead(t *testing.T) {
	serveFirst(t, func(f *first) {
		conn := &bunched{Conn: f.l.dial()}
		c := &talker{tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}, MaxVersion: tls.VersionTLS12}), t, nil} // of 1.3 the end always comes alone
		if err := c.Handshake(); err != nil {
			t.Fatal(err)
		}
		conn.holds = true
		_, err := io.WriteString(c, get+lines(1, 3*largeHead/2)+stop)
		if err := errors.Join(err, c.CloseWrite()); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = conn.Conn.Write(conn.held) }()
		c.r = bufio.NewReader(c)
		c.hears(http.StatusOK, "1 0")
		c.bye()
	})
}
