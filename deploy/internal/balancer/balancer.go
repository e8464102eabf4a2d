// Package balancer spreads the connections to one address over replicas, as the
// load balancer before a service does. It looks at no byte of a connection.
//
// Each replica is asked at an interval whether it is ready; new connections go to
// the ready ones in turn, and to any that takes them when none is. A connection
// stays where it is until one of its ends closes it: a replica that shuts down
// tells its clients to connect anew. One that has not answered at all for a while
// is cut off, so that its clients need not find out by themselves.
//
// A Balancer listens from New on and serves while Run runs. Package suite and
// command balancer have one for each service of which there are several.
package balancer

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	interval    = 100 * time.Millisecond
	dialTimeout = 2 * time.Second
)

// Config says what is balanced.
type Config struct {
	Listen   string   // host:port
	Backends []string // host:port
	// Ready asks a backend for its state.
	Ready func(ctx context.Context, backend string) State
	// Patience is how long a backend may not answer before its connections are
	// closed; 0 for ever.
	Patience time.Duration
}

// State of a backend.
type State int

// A backend gives no answer, answers that it takes no new connections, or takes
// them.
const (
	Silent State = iota
	Busy
	Ready
)

// Balancer spreads connections.
type Balancer struct {
	Config
	listener net.Listener

	mu      sync.Mutex // leaf
	changed chan struct{}
	ready   map[string]bool
	next    int
	open    map[net.Conn]string // the backend
}

// New binds the address. Run gives it back.
func New(c Config) (*Balancer, error) {
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, err
	}
	return &Balancer{Config: c, listener: l, changed: make(chan struct{}), ready: map[string]bool{}, open: map[net.Conn]string{}}, nil
}

// Addr is the address that clients connect to.
func (b *Balancer) Addr() string { return b.listener.Addr().String() }

// Run serves until ctx ends, and then closes all connections.
func (b *Balancer) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	defer b.closeAll()
	for _, backend := range b.Backends {
		group.Go(func() { b.follow(ctx, backend) })
	}
	stop := context.AfterFunc(ctx, func() { _ = b.listener.Close() })
	defer stop()
	for {
		client, err := b.listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return err
		}
		group.Go(func() { b.serve(ctx, client) })
	}
}

// Await waits until a backend is known to be ready, or not to be.
func (b *Balancer) Await(ctx context.Context, backend string, ready bool) error {
	for {
		b.mu.Lock()
		now, changed := b.ready[backend], b.changed
		b.mu.Unlock()
		if now == ready {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

func (b *Balancer) follow(ctx context.Context, backend string) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	answered := time.Now()
	for {
		state := b.Ready(ctx, backend)
		if state != Silent {
			answered = time.Now()
		} else if b.Patience > 0 && time.Since(answered) > b.Patience {
			b.closeAll(backend)
		}
		ready := state == Ready
		b.mu.Lock()
		if b.ready[backend] != ready {
			b.ready[backend] = ready
			close(b.changed)
			b.changed = make(chan struct{})
		}
		b.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// candidates are the backends to try for a connection, in order.
func (b *Balancer) candidates() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.Backends)
	out := make([]string, 0, n)
	for i := range n {
		out = append(out, b.Backends[(b.next+i)%n])
	}
	b.next = (b.next + 1) % n
	slices.SortStableFunc(out, func(x, y string) int {
		switch {
		case b.ready[x] == b.ready[y]:
			return 0
		case b.ready[x]:
			return -1
		}
		return 1
	})
	return out
}

func (b *Balancer) serve(ctx context.Context, client net.Conn) {
	defer client.Close()
	dialer := net.Dialer{Timeout: dialTimeout}
	for _, backend := range b.candidates() {
		server, err := dialer.DialContext(ctx, "tcp", backend)
		if err != nil {
			continue
		}
		defer server.Close()
		if b.keep(ctx, backend, client, server) {
			join(client, server)
			b.forget(client, server)
		}
		return
	}
}

// join copies both ways until both ends are closed.
func join(client, server net.Conn) {
	var group sync.WaitGroup
	for _, way := range [2][2]net.Conn{{client, server}, {server, client}} {
		group.Go(func() {
			_, err := io.Copy(way[1], way[0])
			if half, ok := way[1].(interface{ CloseWrite() error }); ok && err == nil {
				_ = half.CloseWrite()
				return
			}
			_ = errors.Join(way[0].Close(), way[1].Close())
		})
	}
	group.Wait()
}

// keep connections until they are forgotten or all are closed; false when that
// has happened.
func (b *Balancer) keep(ctx context.Context, backend string, conns ...net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	for _, c := range conns {
		b.open[c] = backend
	}
	return true
}

func (b *Balancer) forget(conns ...net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range conns {
		delete(b.open, c)
	}
}

// closeAll closes the connections to some backends, to all when none is named.
func (b *Balancer) closeAll(backends ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c, backend := range b.open {
		if len(backends) == 0 || slices.Contains(backends, backend) {
			_ = c.Close()
		}
	}
}
