package conns

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"binnacle/libs/limit"
	"binnacle/libs/serving/h2"
)

// http2Client is an HTTP/2 client that only sends.
type http2Client struct {
	*tls.Conn
	*http2.Framer
	id uint32
}

// request sends a GET with further header fields.
func (s *http2Client) request(path string, more ...hpack.HeaderField) error {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	var failed error
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "a"}, {":path", path}} {
		failed = errors.Join(failed, encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
	}
	for _, f := range more {
		failed = errors.Join(failed, encoder.WriteField(f))
	}
	s.id += 2 // stream ids of clients are odd
	return errors.Join(failed,
		s.WriteHeaders(http2.HeadersFrameParam{StreamID: s.id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true}))
}

// TestHTTP2LargeHeadersWaitForPermit checks that large header sections wait for a permit, at most
// headerPermitTimeout, and that small ones do not.
func TestHTTP2LargeHeadersWaitForPermit(t *testing.T) {
	testHandshakes(t, func(t *testing.T, pipes *pipeListener, listener *Listener) {
		listener.config.NextProtos = []string{"h2"}
		permits := NewHeaderLimits(1)
		large := permits.limiter
		server := &http.Server{TLSConfig: &tls.Config{}}
		if err := ServeHTTP2(server, h2.Config{
			MaxStreams: 10, MaxHeaderBytes: DefaultMaxBytes, IdleTimeout: 90 * time.Second, PingAfter: time.Hour,
			PingTimeout: 15 * time.Second, WriteTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler),
		}, 500, listener.metrics, permits); err != nil {
			t.Fatal(err)
		}
		received := make(chan int, 10)
		handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { received <- len(r.URL.Path) })
		closed := make(chan struct{}, 2)
		connect := func() *http2Client {
			client := tls.Client(pipes.dial(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
			go func() { _, _ = io.Copy(io.Discard, client) }()
			sender := &http2Client{Conn: client, Framer: http2.NewFramer(client, nil), id: 1}
			prefaceSent := make(chan error, 1)
			go func() {
				_, err := io.WriteString(client, http2.ClientPreface)
				prefaceSent <- errors.Join(err, sender.WriteSettings())
			}()
			conn, err := listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				defer func() { closed <- struct{}{} }()
				server.TLSNextProto[http2.NextProtoTLS](server, conn.(*tls.Conn), handler)
			}()
			if err := <-prefaceSent; err != nil {
				t.Fatal(err)
			}
			return sender
		}
		firstClient, secondClient := connect(), connect()
		long := "/" + strings.Repeat("X", 12<<10)
		expectRequests := func(pathLengths ...int) {
			t.Helper()
			time.Sleep(time.Millisecond) // in synctest time, because large reads yield
			synctest.Wait()
			for _, length := range pathLengths {
				select {
				case got := <-received:
					if got != length {
						t.Errorf("got a request with a path of %d bytes, want %d", got, length)
					}
				default:
					t.Errorf("got no request, want one with a path of %d bytes", length)
				}
			}
			if len(received) > 0 {
				t.Errorf("got a request with a path of %d bytes, want none", <-received)
			}
		}
		requireNoError := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		// 1. A large section waits for the permit, a small one does not.
		requireNoError(large.Acquire(t.Context(), limit.Claim[string]{}))
		requireNoError(firstClient.request(long))
		expectRequests()
		requireNoError(secondClient.request("/"))
		expectRequests(1)
		large.Release(limit.Claim[string]{})
		expectRequests(len(long))
		requireNoError(firstClient.request("/x"))
		expectRequests(2)
		if large.InUse() != 0 {
			t.Errorf("after the header sections were read: got %d held permits, want 0", large.InUse())
		}
		// 2. A section that is large only after it is decoded waits, too.
		requireNoError(large.Acquire(t.Context(), limit.Claim[string]{}))
		requireNoError(firstClient.request("/xy",
			slices.Repeat([]hpack.HeaderField{{Name: "x", Value: strings.Repeat("v", 3900)}}, 20)...))
		expectRequests() // HPACK sends one byte for each repeated field
		large.Release(limit.Claim[string]{})
		expectRequests(3)
		// 3. A section waits at most headerPermitTimeout.
		requireNoError(large.Acquire(t.Context(), limit.Claim[string]{}))
		requireNoError(secondClient.request(long))
		start := time.Now()
		if got := <-received; got != len(long) || time.Since(start).Truncate(time.Millisecond) != headerPermitTimeout {
			t.Errorf("got a request with a path of %d bytes after %v, want %d after %v", got, time.Since(start),
				len(long), headerPermitTimeout)
		}
		requireNoError(firstClient.request(long))
		expectRequests()
		large.Release(limit.Claim[string]{})
		expectRequests(len(long))
		// 4. A request with more fields than MaxHeaderLines does not reach the handler.
		fields := func(n int) []hpack.HeaderField {
			return slices.Repeat([]hpack.HeaderField{{Name: "x", Value: "v"}}, n)
		}
		requireNoError(firstClient.request("/many", fields(MaxHeaderLines+1000)...))
		requireNoError(secondClient.request("/less", fields(MaxHeaderLines-1000)...))
		expectRequests(len("/less"))
		if permits.reserved > 0 {
			t.Errorf("after all sections were read: got %d reserved bytes, want 0", permits.reserved)
		}
		// 5. Connections that close return the memory of unfinished sections and the waiting permit.
		requireNoError(secondClient.WriteHeaders(http2.HeadersFrameParam{
			StreamID:      secondClient.id + 2,
			BlockFragment: []byte(strings.Repeat("\x88", 12<<10)),
		}))
		expectRequests()
		if permits.reserved < largeHeader {
			t.Errorf("unfinished header section: got %d reserved bytes, want at least %d", permits.reserved, largeHeader)
		}
		requireNoError(large.Acquire(t.Context(), limit.Claim[string]{}))
		requireNoError(firstClient.request(long))
		expectRequests()
		for _, client := range []*http2Client{firstClient, secondClient} {
			_ = client.NetConn().Close()
		}
		<-closed
		<-closed
		large.Release(limit.Claim[string]{})
		synctest.Wait()
		if large.InUse() != 0 || permits.reserved > 0 {
			t.Errorf("at the end: got %d permits in use, %d reserved bytes, want none", large.InUse(), permits.reserved)
		}
	})
}
