package aggregate_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"binnacle/services/apiserver/internal/aggregate"
)

// network connects extension servers by connections in memory, as nothing else can be
// waited for in a synctest bubble.
type network struct {
	mu    sync.Mutex
	pipes map[string]*pipes // by address
}

// inBubble runs a test whose time passes at once when all wait.
func inBubble(t *testing.T, test func(t *testing.T, n *network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(10 * time.Minute) }) // for connections that nothing uses
		test(t, &network{pipes: map[string]*pipes{}})
	})
}

// extend is the function of that name in this network.
func (n *network) extend(t *testing.T, cert tls.Certificate, serve http.HandlerFunc) *extension {
	n.mu.Lock()
	p := &pipes{port: 10_000 + len(n.pipes), conns: make(chan net.Conn), closed: make(chan struct{})}
	n.pipes[fmt.Sprint("localhost:", p.port)] = p
	n.mu.Unlock()
	return extendOn(t, p, cert, serve)
}

// start is the function of that name in this network.
func (n *network) start(t *testing.T, change func(*bench, *aggregate.Config)) *bench {
	return start(t, func(b *bench, c *aggregate.Config) {
		c.Dial = n.dial
		if change != nil {
			change(b, c)
		}
	})
}

func (n *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	p := n.pipes[address]
	n.mu.Unlock()
	if p == nil {
		return nil, fmt.Errorf("dial %s: no such server", address)
	}
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// pipes is a listener.
type pipes struct {
	port   int
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: p.port} }
