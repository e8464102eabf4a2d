package serving

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"binnacle/libs/serving/tlsfiles"
)

// piped is a listener of connections without buffers: what is written waits for its reader.
type piped struct {
	conns chan net.Conn
	once  sync.Once
}

func (p *piped) Accept() (net.Conn, error) {
	c, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p *piped) Close() error   { p.once.Do(func() { close(p.conns) }); return nil }
func (p *piped) Addr() net.Addr { return &net.TCPAddr{} }

func (p *piped) dial() net.Conn {
	client, server := net.Pipe()
	p.conns <- server
	return client
}

// greeted runs a test, in a time of its own, with what shakes hands on a piped listener.
func greeted(t *testing.T, test func(t *testing.T, l *piped, h *handshakes)) {
	certFile, keyFile, err := tlsfiles.LoadOrCreateSelfSigned(tlsfiles.SelfSigned{Dir: t.TempDir(), Name: "a", DNS: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		m, err := newClientMetrics(nil)
		if err != nil {
			t.Fatal(err)
		}
		m.errors = prometheus.NewCounter(prometheus.CounterOpts{Name: "errors"})
		l := &piped{conns: make(chan net.Conn)}
		h := shakeHands(l, &tls.Config{Certificates: []tls.Certificate{pair}, SessionTicketsDisabled: true}, slog.New(slog.DiscardHandler), m, newTurns(1), nil)
		test(t, l, h)
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(lingering) // of the test's own time: who was refused is read for so long
		if h.turns.free != free() || len(h.turns.order) > 0 {
			t.Errorf("at the end %d turns of %d are free, %v wait", h.turns.free, free(), h.turns.order)
		}
	})
}

// free is how many turns there are.
func free() int { return max(1, runtime.GOMAXPROCS(0)/handshakeShare) }

// mute is a client that hears nothing.
type mute struct {
	net.Conn
	end chan struct{}
}

func (m mute) Read([]byte) (int, error) {
	<-m.end
	return 0, io.EOF
}

// TestGreetingsThatAreNotRead: clients begin a handshake and do not take the server's part of
// it, which may be more than the system holds for them. Others shake hands meanwhile.
func TestGreetingsThatAreNotRead(t *testing.T) {
	greeted(t, func(t *testing.T, l *piped, h *handshakes) {
		end := make(chan struct{})
		for range runtime.GOMAXPROCS(0) {
			c := mute{l.dial(), end}
			go func() {
				if err := tls.Client(c, &tls.Config{InsecureSkipVerify: true}).Handshake(); !errors.Is(err, io.EOF) {
					t.Error(err)
				}
				_ = c.Close()
			}()
		}
		synctest.Wait()
		done := make(chan error, 1)
		c := tls.Client(l.dial(), &tls.Config{InsecureSkipVerify: true})
		go func() { done <- c.HandshakeContext(t.Context()) }()
		ctx, cancel := context.WithTimeout(t.Context(), handshakeTimeout/2) // long before the others end
		defer cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-ctx.Done():
			t.Error("who does not read holds the others up")
		}
		_ = c.NetConn().Close()
		close(end)
		synctest.Wait()
	})
}

// TestHandshakesAreCounted by how they end, and those that fail for who asked to hear of it.
func TestHandshakesAreCounted(t *testing.T) {
	greeted(t, func(t *testing.T, l *piped, h *handshakes) {
		count := func(what string, shaken, failed, late float64) {
			t.Helper()
			synctest.Wait()
			for name, c := range map[string]struct {
				counter prometheus.Collector
				want    float64
			}{"ok": {h.metrics.shaken, shaken}, "failed": {h.metrics.failed, failed}, "late": {h.metrics.late, late}, "errors": {h.metrics.errors, failed + late}, "waiting": {h.metrics.waiting, 0}} {
				if got := testutil.ToFloat64(c.counter); got != c.want {
					t.Errorf("%s: %v of %s, want %v", what, got, name, c.want)
				}
			}
		}
		good := tls.Client(l.dial(), &tls.Config{InsecureSkipVerify: true})
		go func() { _ = good.HandshakeContext(t.Context()) }()
		conn, err := h.Accept()
		if err != nil {
			t.Fatal(err)
		}
		count("a good one", 1, 0, 0)
		go func() { _, _ = good.Write([]byte("x")) }()
		if _, err := conn.Read(make([]byte, 1)); err != nil || h.turns.free != free() {
			t.Errorf("%d turns are free while it is worked for, %v", h.turns.free, err)
		}
		_ = good.NetConn().Close()
		_ = conn.Close()

		gone := l.dial()
		_ = gone.Close()
		count("one that goes away", 1, 1, 0)

		silent := l.dial()
		if _, err := io.ReadAll(silent); err != nil { // until the server ends it
			t.Error(err)
		}
		count("one that says nothing", 1, 1, 1)
	})
}

// TestWhatIsReadIsPaidFor: resets and frames that ask for nothing.
func TestWhatIsReadIsPaidFor(t *testing.T) {
	all := newAddresses(alike * resetRate)
	client, server := net.Pipe()
	c := newPacedConn(tls.Server(server, &tls.Config{}), nil, all)
	c.Came(1, 2)
	if resets, control, all := resetStart-c.resets.left, controlStart-c.control.left, alike*resetRate-c.from.left; resets != 1 || control != 2 || all != 1 {
		t.Errorf("%v resets and %v others were paid for, %v by the address", resets, control, all)
	}
	c.Sent(2, 0, 2*paidBytes)
	if resets, control, all := resetStart-c.resets.left, controlStart-c.control.left, alike*resetRate-c.from.left; resets != 3 || control != 0 || all != 3 {
		t.Errorf("%v resets and %v others were paid for, %v by the address", resets, control, all)
	}
	_, _ = client.Close(), c.Close()
}

// TestFramesThatCannotBeSent: the server hears of it, whether TLS or the connection below takes
// no more.
func TestFramesThatCannotBeSent(t *testing.T) {
	for name, end := range map[string]func(server, client *tls.Conn) error{
		"TLS":        func(server, _ *tls.Conn) error { return server.CloseWrite() },
		"connection": func(_, client *tls.Conn) error { return client.NetConn().Close() },
	} {
		greeted(t, func(t *testing.T, l *piped, h *handshakes) {
			client := tls.Client(l.dial(), &tls.Config{InsecureSkipVerify: true})
			go func() { _, _ = io.Copy(io.Discard, client) }()
			conn, err := h.Accept()
			if err != nil {
				t.Fatal(err)
			}
			c := newPacedConn(conn.(*tls.Conn), h.metrics, newAddresses(alike*resetRate))
			frame := make([]byte, 32<<10)
			send := func() (int, error) {
				c.Hold()
				n, err := c.Write(frame)
				return n, errors.Join(err, c.Release())
			}
			if n, err := send(); n != len(frame) || err != nil {
				t.Errorf("%s: %d bytes, %v", name, n, err)
			}
			if err := end(c.Conn, client); err != nil {
				t.Error(err)
			}
			if _, err := send(); err == nil {
				t.Errorf("%s: a frame is sent after the end", name)
			}
			_, _ = c.Close(), client.NetConn().Close()
			synctest.Wait()
		})
	}
}

// TestWhoAsksWithoutTLS is answered if what it sends is HTTP, unless it does not read that.
func TestWhoAsksWithoutTLS(t *testing.T) {
	for request, answered := range map[string]bool{
		"GET / HTTP/1.1\r\n\r\n": true, "HEAD / HTTP/1.1\r\n\r\n": true, "POST / HTTP/1.1\r\n\r\n": true, "PUT / HTTP/1.1\r\n\r\n": true,
		"OPTIONS / HTTP/1.1\r\n\r\n": true, "EHLO mail.example.com\r\n": false,
	} {
		greeted(t, func(t *testing.T, l *piped, h *handshakes) {
			c := l.dial()
			if _, err := io.WriteString(c, request[:5]); err != nil {
				t.Fatal(err)
			}
			if got, _ := io.ReadAll(c); (string(got) == notTLS) != answered {
				t.Errorf("%q is answered with %q", request, got)
			}
			silent := l.dial()
			if _, err := io.WriteString(silent, request[:5]); err != nil {
				t.Fatal(err)
			}
			time.Sleep(handshakeTimeout / 2) // of the test's own time
			synctest.Wait()
			if n := testutil.ToFloat64(h.metrics.failed); n != 2 {
				t.Errorf("%q: %v handshakes have failed", request, n)
			}
			_ = silent.Close()
		})
	}
}

// forgetful is a client that goes on without TLS after its greeting.
type forgetful struct {
	net.Conn
	greeted bool
}

func (f *forgetful) Write(p []byte) (int, error) {
	if !f.greeted {
		f.greeted = true
		return f.Conn.Write(p)
	}
	_, err := f.Conn.Write([]byte("GET /"))
	return len(p), err
}

// TestWhoForgetsTLS in the middle of it is told by TLS alone.
func TestWhoForgetsTLS(t *testing.T) {
	greeted(t, func(t *testing.T, l *piped, h *handshakes) {
		c := l.dial()
		if err := tls.Client(&forgetful{Conn: c}, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(c)
		if err != nil || len(got) == 0 || bytes.Contains(got, []byte(notTLS)) {
			t.Errorf("answered with %q, %v", got, err)
		}
	})
}

// TestHandshakesTakeTurns: only as many are computed at a time as there are turns; one whose
// client waits too long ends.
func TestHandshakesTakeTurns(t *testing.T) {
	for name, tc := range map[string]struct {
		busy       time.Duration
		done, late float64
	}{"soon": {handshakeTimeout / 2, 1, 0}, "too late": {handshakeTimeout + 1, 0, 1}} {
		greeted(t, func(t *testing.T, l *piped, h *handshakes) {
			for range free() {
				if err := h.turns.enter(t.Context(), netip.Addr{}); err != nil {
					t.Fatal(err)
				}
			}
			c := tls.Client(l.dial(), &tls.Config{InsecureSkipVerify: true})
			go func() { _ = c.HandshakeContext(t.Context()) }()
			time.Sleep(tc.busy / 2)
			synctest.Wait()
			if n := testutil.ToFloat64(h.metrics.waiting); n != 1 {
				t.Errorf("%s: %v handshakes wait", name, n)
			}
			time.Sleep(tc.busy - tc.busy/2) // of the test's own time
			synctest.Wait()
			for range free() {
				h.turns.leave()
			}
			synctest.Wait()
			for what, want := range map[prometheus.Collector]float64{h.metrics.shaken: tc.done, h.metrics.late: tc.late, h.metrics.waiting: 0} {
				if got := testutil.ToFloat64(what); got != want {
					t.Errorf("%s: counted %v, want %v", name, got, want)
				}
			}
			_ = c.NetConn().Close()
		})
	}
}

// TestTheEndOfHandshakes: those that go on, and those that nobody accepts, end with the listener.
func TestTheEndOfHandshakes(t *testing.T) {
	greeted(t, func(t *testing.T, l *piped, h *handshakes) {
		silent, shaken := l.dial(), tls.Client(l.dial(), &tls.Config{InsecureSkipVerify: true})
		go func() { _ = shaken.HandshakeContext(t.Context()) }()
		synctest.Wait()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		if n := testutil.ToFloat64(h.metrics.failed); n != 1 {
			t.Errorf("%v handshakes have failed at the end", n)
		}
		for _, c := range []net.Conn{silent, shaken.NetConn()} {
			if _, err := io.ReadAll(c); err != nil {
				t.Error(err)
			}
		}
		if _, err := h.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("what is accepted after the end: %v", err)
		}
	})
}
