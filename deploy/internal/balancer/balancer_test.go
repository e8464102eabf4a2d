package balancer_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"binnacle/deploy/internal/balancer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// backend responds to each line with its name.
func backend(t *testing.T, name string) (net.Listener, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			group.Go(func() {
				defer conn.Close()
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					fmt.Fprintf(conn, "%s %s\n", name, lines.Text())
				}
				fmt.Fprintln(conn, "bye")
			})
		}
	})
	t.Cleanup(func() { listener.Close(); group.Wait() })
	return listener, listener.Addr().String()
}

// fixture is a balancer with two backends.
type fixture struct {
	*balancer.Balancer
	t     *testing.T
	addrs [2]string
	lns   [2]net.Listener

	mu    sync.Mutex
	ready map[string]bool
	gone  map[string]bool // backends without a response to readiness checks
}

// start runs a balancer with two ready backends.
func start(t *testing.T) *fixture {
	t.Helper()
	b := &fixture{t: t, ready: map[string]bool{}, gone: map[string]bool{}}
	// Cleanups run in reverse order: the balancer stops before its backends.
	for i, name := range []string{"a", "b"} {
		b.lns[i], b.addrs[i] = backend(t, name)
		b.ready[b.addrs[i]] = true
	}
	var err error
	b.Balancer, err = balancer.New(balancer.Config{
		Listen:              "127.0.0.1:0",
		Backends:            b.addrs[:],
		UnresponsiveTimeout: time.Nanosecond,
		Ready: func(_ context.Context, addr string) balancer.State {
			b.mu.Lock()
			defer b.mu.Unlock()
			switch {
			case b.gone[addr]:
				return balancer.Silent
			case b.ready[addr]:
				return balancer.Ready
			}
			return balancer.Busy
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v, want error %v", err, context.Canceled)
		}
	})
	b.await(0, true)
	b.await(1, true)
	return b
}

func (b *fixture) set(i int, ready bool) {
	b.t.Helper()
	b.mu.Lock()
	b.ready[b.addrs[i]] = ready
	b.mu.Unlock()
	b.await(i, ready)
}

func (b *fixture) await(i int, ready bool) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	if err := b.Await(ctx, b.addrs[i], ready); err != nil {
		b.t.Fatal(err)
	}
}

// client is a connection through the balancer.
type client struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func (b *fixture) dial() *client {
	b.t.Helper()
	conn, err := net.Dial("tcp", b.Addr())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { conn.Close() })
	return &client{b.t, conn, bufio.NewReader(conn)}
}

// request returns the name of the backend that responds, or "" when the connection is closed.
func (c *client) request() string {
	if _, err := fmt.Fprintln(c, "x"); err != nil {
		return ""
	}
	line, err := c.r.ReadString('\n')
	if err != nil {
		return ""
	}
	return line[:1]
}

func (b *fixture) spread(n int) map[string]int {
	out := map[string]int{}
	for range n {
		out[b.dial().request()]++
	}
	return out
}

// TestRoundRobinOfReadyBackends checks that connections go to ready backends in turn, to any
// backend if none is ready, and that existing connections stay.
func TestRoundRobinOfReadyBackends(t *testing.T) {
	fixture := start(t)
	if got := fixture.spread(6); got["a"] != 3 || got["b"] != 3 {
		t.Errorf("got connections %v by backend, want 3 of a and 3 of b", got)
	}
	stays := map[string]*client{}
	for len(stays) < 2 {
		c := fixture.dial()
		stays[c.request()] = c
	}
	fixture.set(0, false)
	if got := fixture.spread(4); got["b"] != 4 {
		t.Errorf("a not ready: got connections %v by backend, want 4 of b", got)
	}
	for name, c := range stays {
		if got := c.request(); got != name {
			t.Errorf("connection to %s: got response of %q, want %v", name, got, name)
		}
	}
	fixture.set(1, false)
	if got := fixture.spread(4); got[""] != 0 {
		t.Errorf("none ready: got connections %v by backend, want none without a backend", got)
	}
}

// TestUnreachableBackendIsSkipped checks that a connection goes to another backend if the first one
// rejects it.
func TestUnreachableBackendIsSkipped(t *testing.T) {
	b := start(t)
	b.lns[0].Close() // still ready for the balancer
	if got := b.spread(4); got["b"] != 4 {
		t.Errorf("got connections %v by backend, want 4 of b", got)
	}
}

// TestUnresponsiveBackendIsDisconnected checks that only the connections to a backend that does not
// respond are closed.
func TestUnresponsiveBackendIsDisconnected(t *testing.T) {
	fixture := start(t)
	clients := map[string]*client{}
	for len(clients) < 2 {
		c := fixture.dial()
		clients[c.request()] = c
	}
	fixture.mu.Lock()
	fixture.gone[fixture.addrs[0]] = true
	fixture.mu.Unlock()
	if _, err := clients["a"].r.ReadByte(); err == nil {
		t.Error("read from the removed instance a = nil, want an error")
	}
	if got := clients["b"].request(); got != "b" {
		t.Errorf("connection to b: got response of %q, want \"b\"", got)
	}
	if got := fixture.dial().request(); got != "b" {
		t.Errorf("new connection: got %q, want \"b\"", got)
	}
}

// TestHalfCloseIsForwarded checks that a client can close its side and still read the rest of the
// response.
func TestHalfCloseIsForwarded(t *testing.T) {
	b := start(t)
	client := b.dial()
	if client.request() == "" {
		t.Fatal("got an empty response, want the name of an instance")
	}
	if err := client.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	remaining, err := io.ReadAll(client.r)
	if err != nil || string(remaining) != "bye\n" {
		t.Errorf("got %q, %v, want bye", remaining, err)
	}
}
