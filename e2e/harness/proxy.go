package harness

import (
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// Traffic says what a Proxy does with connections.
type Traffic int

const (
	// Pass forwards everything.
	Pass Traffic = iota
	// Cut closes connections and rejects new ones.
	Cut
	// Stall keeps connections open and holds data back in both directions.
	Stall
	// StallResponses holds back only the data from the server, so that requests take effect and
	// clients see no response.
	StallResponses
	// Lose delays some data as if TCP had to retransmit it, so that later data on other connections
	// overtakes it.
	Lose
)

// With Lose, one of lossOdds chunks is delayed by resendDelay. It may be lost again up to
// maxResends times, each with twice the last delay.
const (
	lossOdds    = 8
	resendDelay = 200 * time.Millisecond // the minimum of TCP on Linux
	maxResends  = 4
)

// Proxy is a TCP proxy in front of one or more servers. Its connections can be cut and stalled.
type Proxy struct {
	Addr string // where it listens, host:port

	mu         sync.Mutex // never held while another lock is acquired
	targets    []string
	lastTarget int // counts connections; modulo the number of targets, the first target to try
	traffic    Traffic
	changed    chan struct{} // closed and replaced when traffic changes
	conns      map[net.Conn]struct{}
	closed     bool
}

// StartProxy starts a proxy of targets (host:port), which is shut down with the test. A connection
// goes to the next target that accepts it.
func StartProxy(t testing.TB, targets ...string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	proxy := &Proxy{Addr: listener.Addr().String(), targets: targets, changed: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	var running sync.WaitGroup
	running.Go(func() { proxy.accept(listener, &running) })
	t.Cleanup(func() {
		_ = listener.Close()
		proxy.shutDown()
		running.Wait()
	})
	return proxy
}

// Set changes the handling of traffic, also on existing connections.
func (p *Proxy) Set(traffic Traffic) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.traffic = traffic
	close(p.changed)
	p.changed = make(chan struct{})
	if traffic == Cut {
		p.closeConns()
	}
}

// Reset closes the existing connections. New ones are handled as before.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeConns()
}

// shutDown closes all connections and rejects later ones.
func (p *Proxy) shutDown() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	close(p.changed)
	p.changed = make(chan struct{})
	p.closeConns()
}

// closeConns closes all connections. The caller holds mu.
func (p *Proxy) closeConns() {
	for c := range p.conns {
		_ = c.Close()
	}
}

// accept serves connections until the listener is closed.
func (p *Proxy) accept(l net.Listener, running *sync.WaitGroup) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		running.Go(func() { p.serve(client) })
	}
}

// serve copies between a client and a target until either closes the connection.
func (p *Proxy) serve(client net.Conn) {
	if !p.register(client) {
		return
	}
	defer p.unregister(client)
	server, err := p.dial()
	if err != nil || !p.register(server) {
		return
	}
	defer p.unregister(server)
	var responses sync.WaitGroup
	responses.Go(func() {
		p.forward(client, server, Stall, StallResponses)
		_ = client.Close()
	})
	p.forward(server, client, Stall, Stall)
	_ = server.Close()
	responses.Wait()
}

// SetTargets changes the targets of new connections.
func (p *Proxy) SetTargets(targets ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.targets = targets
}

var errNoTarget = errors.New("no target")

// dial connects to the next target.
func (p *Proxy) dial() (net.Conn, error) {
	p.mu.Lock()
	targets := p.targets
	p.lastTarget++
	next := p.lastTarget
	p.mu.Unlock()
	err := errNoTarget
	for i := range targets {
		c, dialErr := net.Dial("tcp", targets[(next+i)%len(targets)])
		if dialErr == nil {
			return c, nil
		}
		err = dialErr
	}
	return nil, err
}

// register adds a connection to those that Cut closes. It closes the connection and returns false
// if Cut is set or the proxy is shut down.
func (p *Proxy) register(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.traffic == Cut {
		_ = conn.Close()
		return false
	}
	p.conns[conn] = struct{}{}
	return true
}

// unregister closes a registered connection.
func (p *Proxy) unregister(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	_ = c.Close()
}

// forward copies data between two connections until either is closed. It holds data back while the
// mode of the proxy is one of held and alsoHeld.
func (p *Proxy) forward(target, from net.Conn, held, alsoHeld Traffic) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			p.waitWhileHeld(from, held, alsoHeld)
			p.delayLostData()
			if _, err := target.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// delayLostData waits, if data is chosen to be lost, as long as its retransmission would take.
func (p *Proxy) delayLostData() {
	for i := range maxResends {
		p.mu.Lock()
		lost := p.traffic == Lose && rand.IntN(lossOdds) == 0
		changed := p.changed
		p.mu.Unlock()
		if !lost {
			return
		}
		again := time.NewTimer(resendDelay << i)
		select {
		case <-again.C:
		case <-changed:
		}
		again.Stop()
	}
}

// waitWhileHeld blocks while data from a connection is held back. It returns when the connection is
// closed.
func (p *Proxy) waitWhileHeld(from net.Conn, held, alsoHeld Traffic) {
	for {
		p.mu.Lock()
		_, open := p.conns[from]
		changed := p.changed
		holds := p.traffic == held || p.traffic == alsoHeld
		isHeld := holds && open && !p.closed
		p.mu.Unlock()
		if !isHeld {
			return
		}
		<-changed
	}
}
