package serving

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"binnacle/libs/serving/h2"
)

// speaker is a client of HTTP/2 that only speaks.
type speaker struct {
	*tls.Conn
	*http2.Framer
	id uint32
}

func (s *speaker) ask(path string, more ...hpack.HeaderField) error {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	var failed error
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "a"}, {":path", path}} {
		failed = errors.Join(failed, e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
	}
	for _, f := range more {
		failed = errors.Join(failed, e.WriteField(f))
	}
	s.id += 2 // which are odd
	return errors.Join(failed, s.WriteHeaders(http2.HeadersFrameParam{StreamID: s.id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true}))
}

// TestLargeHeadersTakeTurns: they are not read while others have them all, for some time;
// small ones are.
func TestLargeHeadersTakeTurns(t *testing.T) {
	greeted(t, func(t *testing.T, l *piped, h *handshakes) {
		h.config.NextProtos = []string{"h2"}
		all := newHeads(1)
		large := all.turns
		server := &http.Server{TLSConfig: &tls.Config{}}
		if err := serveHTTP2(server, h2.Config{
			MaxStreams: 10, MaxHeaderBytes: maxHeaderBytes, IdleTimeout: idleTimeout, PingAfter: time.Hour,
			PingTimeout: pingTimeout, WriteTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler),
		}, defaultMaxResets, h.metrics, all); err != nil {
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
		long := "/" + strings.Repeat("X", 12<<10)
		heard := func(want ...int) {
			t.Helper()
			time.Sleep(time.Millisecond) // of the test's own time, as who reads much rests
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
		must(one.ask("/xy", slices.Repeat([]hpack.HeaderField{{Name: "x", Value: strings.Repeat("v", 3900)}}, 20)...))
		heard() // a byte stands for each but the first
		large.leave()
		heard(3)
		must(large.enter(t.Context(), netip.Addr{}))
		must(other.ask(long)) // it may wait for so long
		begin := time.Now()
		if got := <-asked; got != len(long) || time.Since(begin).Truncate(time.Millisecond) != headersWait {
			t.Errorf("a path of %d bytes is asked for after %v", got, time.Since(begin))
		}
		must(one.ask(long))
		heard()
		large.leave()
		heard(len(long))
		must(one.ask("/many", slices.Repeat([]hpack.HeaderField{{Name: "x", Value: "v"}}, 11_000)...))
		must(other.ask("/less", slices.Repeat([]hpack.HeaderField{{Name: "x", Value: "v"}}, 9_000)...))
		heard(len("/less"))
		if all.kept > 0 {
			t.Errorf("%d bytes are kept of nothing", all.kept)
		}
		must(other.WriteHeaders(http2.HeadersFrameParam{StreamID: other.id + 2, BlockFragment: []byte(strings.Repeat("\x88", 12<<10))}))
		heard()
		if all.kept < largeHead {
			t.Errorf("%d bytes are kept of a list that does not end", all.kept)
		}
		must(large.enter(t.Context(), netip.Addr{}))
		must(one.ask(long))
		heard()
		for _, s := range []*speaker{one, other} {
			_ = s.NetConn().Close()
		}
		<-over
		<-over
		large.leave()
		synctest.Wait()
		if large.free != 1 || len(large.order) > 0 || all.kept > 0 {
			t.Errorf("%d turns are free at the end, %v wait, %d bytes are kept", large.free, large.order, all.kept)
		}
	})
}
