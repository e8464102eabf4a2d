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

// A Proxy passes all on, or cuts: it closes connections and refuses new ones;
// or stalls: connections stay and what is sent is kept back, in both
// directions or in the one of the answers, so that requests take effect and
// nobody is told; or loses: some of what is sent comes as late as what TCP has to
// send again, and what was sent later on other connections comes before.
const (
	Pass Traffic = iota
	Cut
	Stall
	StallAnswers
	Lose
)

// Of what is sent over a link that loses, one part in lossOdds is sent again after
// resendDelay, and after twice as long each time it is lost again.
const (
	lossOdds    = 8
	resendDelay = 200 * time.Millisecond // TCP's own on Linux, at least
	maxResends  = 4
)

// Proxy is a TCP proxy in front of a server, or of several in turns, whose
// connections can be cut and stalled.
type Proxy struct {
	Addr string // where it listens, host:port

	mu      sync.Mutex // a leaf
	targets []string
	turn    int
	traffic Traffic
	changed chan struct{} // closed when traffic changes
	conns   map[net.Conn]struct{}
	closed  bool
}

// StartProxy starts a proxy of targets, host:port, which ends with the test. A
// connection goes to the next target that takes it.
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

// Set changes what happens to the traffic, of connections that exist as well.
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

// Reset closes the connections that exist; new ones are treated as before.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop()
}

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

func (p *Proxy) accept(l net.Listener, running *sync.WaitGroup) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		running.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	if !p.keep(client) {
		return
	}
	defer p.forget(client)
	server, err := p.dial()
	if err != nil || !p.keep(server) {
		return
	}
	defer p.forget(server)
	var answers sync.WaitGroup
	answers.Go(func() {
		p.copy(client, server, Stall, StallAnswers)
		_ = client.Close()
	})
	p.copy(server, client, Stall, Stall)
	_ = server.Close()
	answers.Wait()
}

// To changes the targets, of connections that come.
func (p *Proxy) To(targets ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.targets = targets
}

var errNoTarget = errors.New("no target")

func (p *Proxy) dial() (net.Conn, error) {
	p.mu.Lock()
	targets := p.targets
	p.turn++
	turn := p.turn
	p.mu.Unlock()
	err := errNoTarget
	for i := range targets {
		c, dialErr := net.Dial("tcp", targets[(turn+i)%len(targets)])
		if dialErr == nil {
			return c, nil
		}
		err = dialErr
	}
	return nil, err
}

// keep makes a connection one that can be cut, unless all are cut.
func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.traffic == Cut {
		_ = c.Close()
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) forget(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	_ = c.Close()
}

// copy passes on what from says, except while the traffic is one of the two
// that hold it back.
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

// resend takes as long as what was lost takes to come, as far as it is lost.
func (p *Proxy) resend() {
	for i := range maxResends {
		p.mu.Lock()
		lost, changed := p.traffic == Lose && rand.IntN(lossOdds) == 0, p.changed
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

// wait returns when what comes from a connection may pass.
func (p *Proxy) wait(from net.Conn, one, other Traffic) {
	for {
		p.mu.Lock()
		_, open := p.conns[from]
		held, changed := p.traffic == one || p.traffic == other, p.changed
		held = held && open && !p.closed
		p.mu.Unlock()
		if !held {
			return
		}
		<-changed
	}
}
