package etcdtest

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// Proxy is a proxy between a client and a server whose connections can be cut.
type Proxy struct {
	listener net.Listener
	handlers sync.WaitGroup

	// mu guards the fields below.
	mu     sync.Mutex
	target string
	isCut  bool
	conns  map[net.Conn]bool
}

// NewProxy listens in front of a server's endpoint until the test ends.
func NewProxy(t testing.TB, endpoint string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return NewProxyOn(t, l, endpoint)
}

// NewProxyOn is NewProxy on a listener, which may add TLS.
func NewProxyOn(t testing.TB, listener net.Listener, endpoint string) *Proxy {
	t.Helper()
	u, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &Proxy{listener: listener, target: u.Host, conns: map[net.Conn]bool{}}
	proxy.handlers.Go(proxy.acceptLoop)
	t.Cleanup(func() {
		proxy.listener.Close()
		proxy.Cut()
		proxy.handlers.Wait()
	})
	return proxy
}

// Endpoint returns the URL for clients, without TLS.
func (p *Proxy) Endpoint() string { return "http://" + p.listener.Addr().String() }

// Cut breaks all connections and rejects new ones.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = true
	for c := range p.conns {
		c.Close()
	}
}

// Heal accepts new connections again.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = false
}

// Switch breaks all connections, and connects new ones to another server.
func (p *Proxy) Switch(t testing.TB, endpoint string) {
	t.Helper()
	u, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	p.Cut()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = u.Host
	p.isCut = false
}

// acceptLoop handles connections until the listener is closed.
func (p *Proxy) acceptLoop() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.handlers.Go(func() { p.forward(c) })
	}
}

// forward forwards a connection to the target.
func (p *Proxy) forward(client net.Conn) {
	defer client.Close()
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	if !p.track(client, server) {
		return
	}
	defer p.untrack(client, server)
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(client, server)
		client.Close()
	})
	_, _ = io.Copy(server, client)
	server.Close()
	back.Wait()
}

// track adds connections, which Cut closes. It returns false if new connections are rejected.
func (p *Proxy) track(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = true
	}
	return !p.isCut
}

// untrack removes closed connections.
func (p *Proxy) untrack(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.conns, c)
	}
}
