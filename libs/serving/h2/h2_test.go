package h2_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/http2"

	"binnacle/libs/serving/h2"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tlsWire is a wire without limits and counts.
type tlsWire struct{ *tls.Conn }

func (tlsWire) Delivered() (int64, int64) { return 0, 0 }
func (tlsWire) Cork()                     {}
func (tlsWire) Uncork() error             { return nil }
func (tlsWire) FramesReceived(int, int)   {}
func (tlsWire) Throttle()                 {}
func (tlsWire) FramesSent(int, int, int)  {}
func (tlsWire) AcquireHeaderPermit()      {}
func (tlsWire) ReleaseHeaderPermit()      {}
func (tlsWire) ReserveHeader(int) bool    { return true }

// server is a server under test with its listener.
type server struct {
	*h2.Server
	listener net.Listener
	roots    *tls.Config
}

// config returns a configuration whose limits no test reaches by accident.
func config() h2.Config {
	return h2.Config{
		MaxStreams: 100, MaxHeaderBytes: 64 << 10, IdleTimeout: time.Minute, PingAfter: time.Minute,
		PingTimeout: time.Minute, WriteTimeout: time.Minute, StallTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler),
	}
}

// serve starts a server on a TLS listener. change may change its configuration.
func serve(t testing.TB, handler http.HandlerFunc, change func(*h2.Config)) *server {
	t.Helper()
	certified := httptest.NewUnstartedServer(nil)
	certified.EnableHTTP2 = true
	certified.StartTLS()
	offered, roots := certified.TLS.Clone(), certified.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	certified.Close()
	roots.NextProtos, roots.ServerName = []string{"h2"}, "example.com"
	listener, err := tls.Listen("tcp", "127.0.0.1:0", offered)
	if err != nil {
		t.Fatal(err)
	}
	c := config()
	if change != nil {
		change(&c)
	}
	started := &server{h2.NewServer(c), listener, roots}
	var conns sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	conns.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				context.AfterFunc(ctx, func() { _ = conn.Close() })
				if conn.(*tls.Conn).Handshake() == nil {
					started.ServeConn(ctx, tlsWire{conn.(*tls.Conn)}, handler)
				}
				_ = conn.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		cancel()
		conns.Wait()
	})
	return started
}

func (s *server) client(t testing.TB) *http.Client {
	transport := &http2.Transport{
		TLSClientConfig: s.roots,
		DialTLSContext: func(ctx context.Context, network, _ string, config *tls.Config) (net.Conn, error) {
			return (&tls.Dialer{Config: config}).DialContext(ctx, network, s.listener.Addr().String())
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func get(t testing.TB, c *http.Client, path string) (*http.Response, string) {
	t.Helper()
	resp, err := c.Get("https://example.com" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

// TestResponsesWithTransport checks the forms of responses with the client of net/http.
func TestResponsesWithTransport(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 1<<17) // 2 MiB
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/short":
			_, _ = io.WriteString(w, "short")
		case "/counted":
			w.Header().Set("Content-Length", "20000")
			_, _ = io.WriteString(w, large[:20000])
		case "/large":
			_, _ = io.WriteString(w, large)
		case "/nothing":
			w.WriteHeader(http.StatusNoContent)
		case "/missing":
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "four")
		case "/echo":
			_, err := io.Copy(w, r.Body)
			if err != nil {
				panic(http.ErrAbortHandler)
			}
		case "/trailers":
			w.Header().Set("Trailer", "X-Sum")
			_, _ = io.WriteString(w, "body")
			w.Header().Set("X-Sum", "4")
		case "/panic":
			panic("for a test")
		}
	}, nil)
	client := server.client(t)
	for path, want := range map[string]string{"/short": "short", "/counted": large[:20000], "/large": large, "/nothing": ""} {
		resp, got := get(t, client, path)
		if got != want || resp.Header.Get("Date") == "" {
			t.Errorf("%s: got %d bytes, want %d; header %v", path, len(got), len(want), resp.Header)
		}
	}
	if resp, _ := get(t, client, "/short"); resp.ContentLength != 5 || resp.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("got headers %v, want length 5, type text/plain; charset=utf-8", resp.Header)
	}
	resp, err := client.Head("https://example.com/counted")
	if err != nil || resp.ContentLength != 20000 {
		t.Errorf("got response %v, %v, want one with Content-Length 20000", resp, err)
	}
	resp, err = client.Get("https://example.com/missing")
	if err == nil {
		_, err = io.ReadAll(resp.Body)
		resp.Body.Close()
	}
	if err == nil {
		t.Error("an incomplete response was accepted")
	}
	resp, body := get(t, client, "/trailers")
	if body != "body" || resp.Trailer.Get("X-Sum") != "4" {
		t.Errorf("got body %q, trailers %v, want body with X-Sum 4", body, resp.Trailer)
	}
	if _, err := client.Get("https://example.com/panic"); err == nil {
		t.Error("a panic got a response")
	}
	for _, n := range []int{0, 1, 5000, 100_000, len(large)} {
		resp, err := client.Post("https://example.com/echo", "text/plain", strings.NewReader(large[:n]))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(got) != large[:n] {
			t.Errorf("got %d bytes, %v, want the first %d", len(got), err, n)
		}
	}
}

// TestConnectionServesManyKindsOfStreams sends lists, watches and short requests on one connection.
func TestConnectionServesManyKindsOfStreams(t *testing.T) {
	large := bytes.Repeat([]byte("x"), 1<<20)
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/list":
			_, _ = w.Write(large)
		case "/watch":
			for i := range 200 {
				fmt.Fprintf(w, "%06d%s\n", i, large[:i*10])
				w.(http.Flusher).Flush()
			}
		default:
			fmt.Fprint(w, "ok")
		}
	}, nil)
	client := server.client(t)
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			for range 5 {
				if _, b := get(t, client, "/list"); len(b) != len(large) {
					t.Errorf("got a list of %d bytes, want %d", len(b), len(large))
				}
			}
		})
		all.Go(func() {
			_, b := get(t, client, "/watch")
			for i, line := range strings.Split(strings.TrimSpace(b), "\n") {
				if !strings.HasPrefix(line, fmt.Sprintf("%06d", i)) || len(line) != 6+10*i {
					t.Errorf("event %d: got %.20s with %d bytes, want its number and %d bytes", i, line, len(line), 6+10*i)
					return
				}
			}
		})
		all.Go(func() {
			for range 100 {
				if _, b := get(t, client, "/"); b != "ok" {
					t.Errorf("got %q, want \"ok\"", b)
				}
			}
		})
	}
	all.Wait()
}

// TestResetCancelsRequest checks that a client reset cancels the request's context.
func TestResetCancelsRequest(t *testing.T) {
	ended := make(chan struct{})
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(ended)
	}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, "GET", "https://example.com/", nil)
	resp, err := server.client(t).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	<-ended
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	resp.Body.Close()
}
