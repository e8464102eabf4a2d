package serving

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// TestFramesOfLargeHeaders are told of when they end, whatever is read at a time; no others.
func TestFramesOfLargeHeaders(t *testing.T) {
	var all bytes.Buffer
	f := http2.NewFramer(&all, nil)
	var ends []int
	write := func(large bool, err error) {
		if err != nil {
			t.Fatal(err)
		}
		if large {
			ends = append(ends, all.Len())
		}
	}
	data := make([]byte, largeHeaders)
	write(false, f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: data[1:]}))
	write(true, f.WriteContinuation(1, false, data[:1]))
	write(true, f.WriteContinuation(1, true, data[:5]))
	write(false, f.WriteData(1, false, data))
	write(false, f.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: data[:5], EndHeaders: true}))
	write(true, f.WriteHeaders(http2.HeadersFrameParam{StreamID: 5, BlockFragment: data, EndHeaders: true}))
	write(false, f.WritePing(false, [8]byte{}))
	for size := 1; size <= all.Len(); size += 1 + size/50 {
		var in frames
		at := 0
		for rest := all.Bytes(); len(rest) > 0; {
			n := min(size, len(rest))
			in.count(rest[:n])
			want := false
			for _, end := range ends {
				want = want || at < end && end <= at+n
			}
			if at += n; in.large != want {
				t.Fatalf("%d bytes at a time: after %d it is said %v", size, at, in.large)
			}
			rest = rest[n:]
		}
	}
}

// speaker is a client of HTTP/2 that only speaks.
type speaker struct {
	*tls.Conn
	*http2.Framer
	id uint32
}

func (s *speaker) ask(path string) error {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	var failed error
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "a"}, {":path", path}} {
		failed = errors.Join(failed, e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
	}
	s.id += 2 // which are odd
	return errors.Join(failed, s.WriteHeaders(http2.HeadersFrameParam{StreamID: s.id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true}))
}

// TestLargeHeadersTakeTurns: they are not read while others have them all, for some time;
// small ones are.
func TestLargeHeadersTakeTurns(t *testing.T) {
	greeted(t, func(t *testing.T, l *piped, h *handshakes) {
		h.config.NextProtos = []string{"h2"}
		large := newTurns(1)
		server := &http.Server{TLSConfig: &tls.Config{}}
		if err := serveHTTP2(server, h.metrics, large); err != nil {
			t.Fatal(err)
		}
		asked := make(chan int, 10)
		handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- len(r.URL.Path) })
		over := make(chan struct{}, 2)
		connect := func() *speaker {
			client := tls.Client(l.dial(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
			go func() { _, _ = io.Copy(io.Discard, client) }()
			s := &speaker{Conn: client, Framer: http2.NewFramer(client, nil), id: 1}
			shaken := make(chan error, 1)
			go func() {
				_, err := io.WriteString(client, http2.ClientPreface)
				shaken <- errors.Join(err, s.WriteSettings())
			}()
			conn, err := h.Accept()
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				defer func() { over <- struct{}{} }()
				server.TLSNextProto[http2.NextProtoTLS](server, conn.(*tls.Conn), handler)
			}()
			if err := <-shaken; err != nil {
				t.Fatal(err)
			}
			return s
		}
		one, other := connect(), connect()
		long := "/" + strings.Repeat("X", 2*largeHeaders)
		heard := func(want ...int) {
			t.Helper()
			synctest.Wait()
			for _, n := range want {
				select {
				case got := <-asked:
					if got != n {
						t.Errorf("a path of %d bytes is asked for, not of %d", got, n)
					}
				default:
					t.Errorf("a path of %d bytes is not asked for", n)
				}
			}
			if len(asked) > 0 {
				t.Errorf("a path of %d bytes is asked for", <-asked)
			}
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(large.enter(t.Context(), netip.Addr{}))
		must(one.ask(long))
		heard()
		must(other.ask("/"))
		heard(1)
		large.leave()
		heard(len(long))
		must(one.ask("/x"))
		heard(2)
		if large.free != 1 {
			t.Error("it keeps its turn once its headers are read")
		}
		must(large.enter(t.Context(), netip.Addr{}))
		must(other.ask(long)) // it may wait for so long
		begin := time.Now()
		if got := <-asked; got != len(long) || time.Since(begin) != headersWait {
			t.Errorf("a path of %d bytes is asked for after %v", got, time.Since(begin))
		}
		must(one.ask(long))
		heard()
		for _, s := range []*speaker{one, other} {
			_ = s.NetConn().Close()
		}
		<-over
		<-over
		large.leave()
		synctest.Wait()
		if large.free != 1 || len(large.order) > 0 {
			t.Errorf("%d turns are free at the end, %v wait", large.free, large.order)
		}
	})
}

// TestTurnsOfWhatHasEnded are given back: nobody reads any more.
func TestTurnsOfWhatHasEnded(t *testing.T) {
	large := newTurns(1)
	turn := headerTurn{turns: large}
	turn.end()
	turn.enter(t.Context(), netip.Addr{})
	if large.free != 1 {
		t.Error("the turn is kept")
	}
	turn = headerTurn{turns: large}
	turn.enter(t.Context(), netip.Addr{})
	if turn.end(); large.free != 1 {
		t.Error("the turn outlives the connection")
	}
}
