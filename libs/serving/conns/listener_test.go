package conns

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"binnacle/libs/limit"
	"binnacle/libs/serving/tlsfiles"
)

// pipeListener is a listener of unbuffered connections.
type pipeListener struct {
	conns chan net.Conn
	once  sync.Once
}

func (p *pipeListener) Accept() (net.Conn, error) {
	c, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p *pipeListener) Close() error   { p.once.Do(func() { close(p.conns) }); return nil }
func (p *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipeListener) dial() net.Conn {
	client, server := net.Pipe()
	p.conns <- server
	return client
}

// testHandshakes runs test in a synctest bubble with a Listener on a pipeListener.
func testHandshakes(t *testing.T, test func(t *testing.T, l *pipeListener, listener *Listener)) {
	certFile, keyFile, err := tlsfiles.LoadOrCreateSelfSigned(tlsfiles.SelfSigned{
		Dir:  t.TempDir(),
		Name: "a",
		DNS:  []string{"a"},
	})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		metrics, err := NewMetrics(nil)
		if err != nil {
			t.Fatal(err)
		}
		metrics.Errors = prometheus.NewCounter(prometheus.CounterOpts{Name: "errors"})
		l := &pipeListener{conns: make(chan net.Conn)}
		listener := NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}, SessionTicketsDisabled: true},
			slog.New(slog.DiscardHandler), metrics, limit.New[string](limit.Options{Size: 1}), nil)
		test(t, l, listener)
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(handshakeGrace + rejectLinger) // in synctest time; rejected clients are read for rejectLinger
		if n := listener.handshakeLimiter.InUse(); n != 0 {
			t.Errorf("%d of %d permits are in use at the end, want 0", n, handshakePermits())
		}
	})
}

// handshakePermits returns the number of handshake permits.
func handshakePermits() int { return max(1, runtime.GOMAXPROCS(0)/handshakeShare) }

// mutedConn is a client connection on which nothing arrives until end is closed.
type mutedConn struct {
	net.Conn
	end chan struct{}
}

func (m mutedConn) Read([]byte) (int, error) {
	<-m.end
	return 0, io.EOF
}

// TestUnreadHandshakeDoesNotBlockOthers checks that clients that do not read the server's part of a
// handshake do not block other handshakes.
func TestUnreadHandshakeDoesNotBlockOthers(t *testing.T) {
	testHandshakes(t, func(t *testing.T, l *pipeListener, h *Listener) {
		end := make(chan struct{})
		for range runtime.GOMAXPROCS(0) {
			c := mutedConn{l.dial(), end}
			go func() {
				if err := tls.Client(c, &tls.Config{InsecureSkipVerify: true}).Handshake(); !errors.Is(err, io.EOF) {
					t.Error(err)
				}
				_ = c.Close()
			}()
		}
		synctest.Wait()
		done := make(chan error, 1)
		conn := tls.Client(l.dial(), &tls.Config{InsecureSkipVerify: true})
		go func() { done <- conn.HandshakeContext(t.Context()) }()
		ctx, cancel := context.WithTimeout(t.Context(), handshakeTimeout/2) // long before the other handshakes time out
		defer cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-ctx.Done():
			t.Error("handshake beside clients that do not read: not complete before the deadline")
		}
		_ = conn.NetConn().Close()
		close(end)
		synctest.Wait()
	})
}

// TestHandshakesAreCountedByOutcome checks the counters for each outcome of a handshake.
func TestHandshakesAreCountedByOutcome(t *testing.T) {
	testHandshakes(t, func(t *testing.T, pipes *pipeListener, listener *Listener) {
		count := func(what string, shaken, failed, late float64) {
			t.Helper()
			synctest.Wait()
			for name, test := range map[string]struct {
				counter prometheus.Collector
				want    float64
			}{
				"ok":      {counter: listener.metrics.succeeded, want: shaken},
				"failed":  {counter: listener.metrics.failed, want: failed},
				"late":    {counter: listener.metrics.timedOut, want: late},
				"errors":  {counter: listener.metrics.Errors, want: failed + late},
				"waiting": {counter: listener.metrics.waitingHandshakes, want: 0},
			} {
				if got := testutil.ToFloat64(test.counter); got != test.want {
					t.Errorf("%s: %s = %v, want %v", what, name, got, test.want)
				}
			}
		}
		completed := tls.Client(pipes.dial(), &tls.Config{InsecureSkipVerify: true})
		go func() { _ = completed.HandshakeContext(t.Context()) }()
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		count("good handshake", 1, 0, 0)
		go func() { _, _ = completed.Write([]byte("x")) }()
		if _, err := conn.Read(make([]byte, 1)); err != nil || listener.handshakeLimiter.InUse() != 0 {
			t.Errorf("after the handshake: got %d permits in use, %v, want none", listener.handshakeLimiter.InUse(), err)
		}
		_ = completed.NetConn().Close()
		_ = conn.Close()

		gone := pipes.dial()
		_ = gone.Close()
		count("closed connection", 1, 1, 0)

		silent := pipes.dial()
		if _, err := io.ReadAll(silent); err != nil { // until the server closes it
			t.Error(err)
		}
		count("silent client", 1, 1, 1)
	})
}

// TestSendErrorIsReturned checks that errors of TLS and of the connection below it are returned.
func TestSendErrorIsReturned(t *testing.T) {
	for name, end := range map[string]func(server, client *tls.Conn) error{
		"TLS":        func(server, _ *tls.Conn) error { return server.CloseWrite() },
		"connection": func(_, client *tls.Conn) error { return client.NetConn().Close() },
	} {
		testHandshakes(t, func(t *testing.T, l *pipeListener, listener *Listener) {
			client := tls.Client(l.dial(), &tls.Config{InsecureSkipVerify: true})
			go func() { _, _ = io.Copy(io.Discard, client) }()
			conn, err := listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
			pacedConn := newPacedConn(conn.(*tls.Conn), listener.metrics, newAddressBuckets(addressFactor*resetRate))
			frame := make([]byte, 32<<10)
			send := func() (int, error) {
				pacedConn.Cork()
				n, err := pacedConn.Write(frame)
				return n, errors.Join(err, pacedConn.Uncork())
			}
			if n, err := send(); n != len(frame) || err != nil {
				t.Errorf("%s: got %d bytes sent, %v, want %d", name, n, err, len(frame))
			}
			if err := end(pacedConn.Conn, client); err != nil {
				t.Error(err)
			}
			if _, err := send(); err == nil {
				t.Errorf("%s: write after the end: error = nil, want one", name)
			}
			_, _ = pacedConn.Close(), client.NetConn().Close()
			synctest.Wait()
		})
	}
}

// TestPlaintextHTTPGets400 checks that plaintext HTTP gets a response, and that a client that does
// not read it is not waited for.
func TestPlaintextHTTPGets400(t *testing.T) {
	for request, wantHint := range map[string]bool{
		"GET / HTTP/1.1\r\n\r\n":     true,
		"HEAD / HTTP/1.1\r\n\r\n":    true,
		"POST / HTTP/1.1\r\n\r\n":    true,
		"PUT / HTTP/1.1\r\n\r\n":     true,
		"OPTIONS / HTTP/1.1\r\n\r\n": true, "EHLO mail.example.com\r\n": false,
	} {
		testHandshakes(t, func(t *testing.T, l *pipeListener, listener *Listener) {
			c := l.dial()
			if _, err := io.WriteString(c, request[:5]); err != nil {
				t.Fatal(err)
			}
			if got, _ := io.ReadAll(c); (string(got) == plainHTTPResponse) != wantHint {
				t.Errorf("%q: got %q, want the hint to use TLS: %t", request, got, wantHint)
			}
			silent := l.dial()
			if _, err := io.WriteString(silent, request[:5]); err != nil {
				t.Fatal(err)
			}
			time.Sleep(handshakeTimeout / 2) // in synctest time
			synctest.Wait()
			if n := testutil.ToFloat64(listener.metrics.failed); n != 2 {
				t.Errorf("%q: %v Listener failed, want 2", request, n)
			}
			_ = silent.Close()
		})
	}
}

// plaintextConn is a client that sends plaintext after its TLS ClientHello.
type plaintextConn struct {
	net.Conn
	sentHello bool
}

func (f *plaintextConn) Write(data []byte) (int, error) {
	if !f.sentHello {
		f.sentHello = true
		return f.Conn.Write(data)
	}
	_, err := f.Conn.Write([]byte("GET /"))
	return len(data), err
}

// TestPlaintextAfterClientHelloGetsTLSAlert checks that plaintext during a handshake gets no HTTP
// response.
func TestPlaintextAfterClientHelloGetsTLSAlert(t *testing.T) {
	testHandshakes(t, func(t *testing.T, l *pipeListener, h *Listener) {
		conn := l.dial()
		if err := tls.Client(&plaintextConn{Conn: conn},
			&tls.Config{InsecureSkipVerify: true}).HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(conn)
		if err != nil || len(got) == 0 || bytes.Contains(got, []byte(plainHTTPResponse)) {
			t.Errorf("got %q, %v, want a TLS alert", got, err)
		}
	})
}

// TestHandshakesWaitForPermit checks that a handshake waits for a permit, and times out if it gets
// none.
func TestHandshakesWaitForPermit(t *testing.T) {
	for name, test := range map[string]struct {
		busy       time.Duration
		done, late float64
	}{
		"soon":     {busy: handshakeTimeout / 2, done: 1, late: 0},
		"too late": {busy: handshakeTimeout + 1, done: 0, late: 1},
	} {
		testHandshakes(t, func(t *testing.T, l *pipeListener, listener *Listener) {
			for range handshakePermits() {
				if err := listener.handshakeLimiter.Acquire(t.Context(), limit.Claim[string]{}); err != nil {
					t.Fatal(err)
				}
			}
			conn := tls.Client(l.dial(), &tls.Config{InsecureSkipVerify: true})
			go func() { _ = conn.HandshakeContext(t.Context()) }()
			time.Sleep(test.busy / 2)
			synctest.Wait()
			if n := testutil.ToFloat64(listener.metrics.waitingHandshakes); n != 1 {
				t.Errorf("%s: %v Listener wait, want 1", name, n)
			}
			time.Sleep(test.busy - test.busy/2) // in synctest time
			synctest.Wait()
			for range handshakePermits() {
				listener.handshakeLimiter.Release(limit.Claim[string]{})
			}
			synctest.Wait()
			for what, want := range map[prometheus.Collector]float64{
				listener.metrics.succeeded:         test.done,
				listener.metrics.timedOut:          test.late,
				listener.metrics.waitingHandshakes: 0,
			} {
				if got := testutil.ToFloat64(what); got != want {
					t.Errorf("%s: metric = %v, want %v", name, got, want)
				}
			}
			_ = conn.NetConn().Close()
		})
	}
}

// TestHandshakesFinishAfterClose checks that a handshake in progress when the listener closes may
// finish within handshakeGrace, that Accept returns its connection, and that other handshakes end.
func TestHandshakesFinishAfterClose(t *testing.T) {
	testHandshakes(t, func(t *testing.T, l *pipeListener, listener *Listener) {
		silent, late := l.dial(), &lateConn{Conn: l.dial(), proceed: make(chan struct{})}
		shaken := make(chan error, 1)
		go func() {
			shaken <- tls.Client(late, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(t.Context())
		}()
		synctest.Wait()
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
		close(late.proceed)
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if err := <-shaken; err != nil {
			t.Error(err)
		}
		if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("second Accept() after Close = %v, want net.ErrClosed", err)
		}
		if _, err := io.ReadAll(silent); err != nil {
			t.Error(err)
		}
		_, _ = conn.Close(), late.Close()
	})
}

// TestConnectionsEndWithoutAccept checks that a finished handshake that no Accept returns is closed
// after the listener.
func TestConnectionsEndWithoutAccept(t *testing.T) {
	testHandshakes(t, func(t *testing.T, l *pipeListener, h *Listener) {
		client := tls.Client(l.dial(), &tls.Config{InsecureSkipVerify: true})
		go func() { _ = client.HandshakeContext(t.Context()) }()
		synctest.Wait()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadAll(client.NetConn()); err != nil {
			t.Error(err)
		}
	})
}

// lateConn is a client connection that sends nothing until proceed is closed.
type lateConn struct {
	net.Conn
	proceed chan struct{}
}

func (c *lateConn) Write(p []byte) (int, error) {
	<-c.proceed
	return c.Conn.Write(p)
}
