package harness

import (
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// Traffic is what a Proxy does with connections.
type Traffic int

// Pass forwards everything. Cut closes connections and rejects new ones. Stall keeps connections
// open and holds data back in both directions. StallResponses holds back only the data from the
// server, so that requests take effect and clients see no response. Lose delays some data as if TCP
// had to retransmit it, so that later data on other connections overtakes it.
const (
	Pass Traffic = iota
	Cut
	Stall
	StallResponses
	Lose
)

// With Lose, one of lossOdds chunks is delayed by resendDelay, and by twice the last delay each
// time it is lost again.
const (
	lossOdds    = 8
	resendDelay = 200 * time.Millisecond // the minimum of TCP on Linux
	maxResends  = 4
)

// Proxy is a TCP proxy in front of one or more servers. Its connections can be cut and stalled.
type Proxy struct {
	Addr string // where it listens, host:port

	mu      sync.Mutex // never held while another lock is acquired
	targets []string
	next    int
	traffic Traffic
	changed chan struct{} // closed when traffic changes
	conns   map[net.Conn]struct{}
	closed  bool
}

// StartProxy starts a proxy of targets (host:port), which ends with the test. A connection goes to
// the next target that accepts it.
func StartProxy(t testing.TB, targets ...string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Addr: l.Addr().String(), targets: targets, changed: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	var running sync.WaitGroup
	running.Go(func() { p.accept(l, &running) })
	t.Cleanup(func() {
		_ = l.Close()
		p.end()
		running.Wait()
	})
	return p
}

// Set changes the handling of traffic, also on existing connections.
func (p *Proxy) Set(traffic Traffic) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.traffic = traffic
	close(p.changed)
	p.changed = make(chan struct{})
	if traffic == Cut {
		p.drop()
	}
}

// Reset closes the existing connections. New ones are handled as before.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop()
}

// end closes all connections and rejects later ones.
func (p *Proxy) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	close(p.changed)
	p.changed = make(chan struct{})
	p.drop()
}

// drop closes all connections. The caller holds mu.
func (p *Proxy) drop() {
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
	if !p.add(client) {
		return
	}
	defer p.remove(client)
	server, err := p.dial()
	if err != nil || !p.add(server) {
		return
	}
	defer p.remove(server)
	var responses sync.WaitGroup
	responses.Go(func() {
		p.copy(client, server, Stall, StallResponses)
		_ = client.Close()
	})
	p.copy(server, client, Stall, Stall)
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
	p.next++
	next := p.next
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

// add registers a connection so that it can be cut. It reports false and closes the connection if
// all are cut.
func (p *Proxy) add(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.traffic == Cut {
		_ = c.Close()
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

// remove closes a connection that add registered.
func (p *Proxy) remove(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	_ = c.Close()
}

// copy forwards data from one connection to the other. It holds data back while the traffic is one
// of the two given kinds.
func (p *Proxy) copy(to, from net.Conn, one, other Traffic) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			p.wait(from, one, other)
			p.resend()
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// resend delays lost data as long as its retransmission takes.
func (p *Proxy) resend() {
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

// wait blocks while data from a connection is held back.
func (p *Proxy) wait(from net.Conn, one, other Traffic) {
	for {
		p.mu.Lock()
		_, open := p.conns[from]
		changed := p.changed
		isHeldKind := p.traffic == one || p.traffic == other
		held := isHeldKind && open && !p.closed
		p.mu.Unlock()
		if !held {
			return
		}
		<-changed
	}
}
