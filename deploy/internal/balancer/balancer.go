// Package balancer distributes the connections to one address over replicas, like the load balancer
// of a service. It does not inspect the data of a connection.
//
// It polls the readiness of each replica. New connections go to the ready replicas in turn, and to
// any that accepts them if none is ready. A connection stays on its replica until one of its ends
// closes it: a replica that shuts down makes its clients reconnect. The connections to a replica
// that has not responded for a while are closed, so that its clients need not detect it themselves.
//
// A Balancer listens from New on and serves while Run runs. Package suite and command balancer use
// one for each service with several instances.
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

// Config configures a Balancer.
type Config struct {
	Listen   string   // host:port
	Backends []string // host:port
	// Ready returns the state of a backend.
	Ready func(ctx context.Context, backend string) State
	// UnresponsiveTimeout is how long a backend may not respond before its connections are closed;
	// 0 means unlimited.
	UnresponsiveTimeout time.Duration
}

// State is the state of a backend.
type State int

const (
	// Silent backends do not respond.
	Silent State = iota
	// Busy backends respond, but accept no new connections.
	Busy
	// Ready backends accept new connections.
	Ready
)

// Balancer distributes connections.
type Balancer struct {
	Config
	listener net.Listener

	mu            sync.Mutex          // leaf lock
	changed       chan struct{}       // closed and replaced when ready changes
	ready         map[string]bool     // by backend
	nextIndex     int                 // in Backends, of the first candidate for the next connection
	backendByConn map[net.Conn]string // backend of each connection
}

// New binds the address. Run releases it.
func New(config Config) (*Balancer, error) {
	listener, err := net.Listen("tcp", config.Listen)
	if err != nil {
		return nil, err
	}
	return &Balancer{
		Config:        config,
		listener:      listener,
		changed:       make(chan struct{}),
		ready:         map[string]bool{},
		backendByConn: map[net.Conn]string{},
	}, nil
}

// Addr returns the address that clients connect to.
func (b *Balancer) Addr() string { return b.listener.Addr().String() }

// Run serves until ctx ends, and then closes all connections.
func (b *Balancer) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	defer b.closeConns()
	for _, backend := range b.Backends {
		group.Go(func() { b.monitorBackend(ctx, backend) })
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
		group.Go(func() { b.serveClient(ctx, client) })
	}
}

// Await waits until a backend has the given readiness.
func (b *Balancer) Await(ctx context.Context, backend string, ready bool) error {
	for {
		b.mu.Lock()
		isReady, changed := b.ready[backend], b.changed
		b.mu.Unlock()
		if isReady == ready {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// monitorBackend checks the state of a backend at each interval. It closes the connections of a
// backend that did not respond for UnresponsiveTimeout.
func (b *Balancer) monitorBackend(ctx context.Context, backend string) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	lastResponse := time.Now()
	for {
		state := b.Ready(ctx, backend)
		if state != Silent {
			lastResponse = time.Now()
		} else if b.UnresponsiveTimeout > 0 && time.Since(lastResponse) > b.UnresponsiveTimeout {
			b.closeConns(backend)
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

// candidates returns the backends to try for a connection, in order.
func (b *Balancer) candidates() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.Backends)
	out := make([]string, 0, n)
	for i := range n {
		out = append(out, b.Backends[(b.nextIndex+i)%n])
	}
	b.nextIndex = (b.nextIndex + 1) % n
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

// serveClient connects a client to the first backend that accepts the connection.
func (b *Balancer) serveClient(ctx context.Context, client net.Conn) {
	defer client.Close()
	dialer := net.Dialer{Timeout: dialTimeout}
	for _, backend := range b.candidates() {
		server, err := dialer.DialContext(ctx, "tcp", backend)
		if err != nil {
			continue
		}
		defer server.Close()
		if b.trackConns(ctx, backend, client, server) {
			splice(client, server)
			b.untrackConns(client, server)
		}
		return
	}
}

// splice copies data in both directions until both ends are closed.
func splice(client, server net.Conn) {
	var group sync.WaitGroup
	for _, direction := range [2][2]net.Conn{{client, server}, {server, client}} {
		group.Go(func() {
			_, err := io.Copy(direction[1], direction[0])
			if half, ok := direction[1].(interface{ CloseWrite() error }); ok && err == nil {
				_ = half.CloseWrite()
				return
			}
			_ = errors.Join(direction[0].Close(), direction[1].Close())
		})
	}
	group.Wait()
}

// trackConns registers open connections, so that closeConns closes them. It returns false if ctx
// has ended.
func (b *Balancer) trackConns(ctx context.Context, backend string, conns ...net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	for _, c := range conns {
		b.backendByConn[c] = backend
	}
	return true
}

// untrackConns forgets closed connections.
func (b *Balancer) untrackConns(conns ...net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range conns {
		delete(b.backendByConn, c)
	}
}

// closeConns closes the connections to some backends, or all connections if none is given.
func (b *Balancer) closeConns(backends ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c, backend := range b.backendByConn {
		if len(backends) == 0 || slices.Contains(backends, backend) {
			_ = c.Close()
		}
	}
}
