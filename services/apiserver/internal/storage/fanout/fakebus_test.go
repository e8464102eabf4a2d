package fanout

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

var errBusDown = errors.New("bus is down")

// bus connects transports in memory.
type bus struct {
	payload int // maximum size of a message in bytes
	mu      sync.Mutex
	nodes   map[*busNode]struct{}
}

func newBus(payload int) *bus { return &bus{payload: payload, nodes: map[*busNode]struct{}{}} }

// busNode is a transport with faults for the messages that it receives.
type busNode struct {
	bus     *bus
	events  linkEvents
	notify  chan struct{} // receives a value when queue grows
	done    chan struct{} // closed by close
	stopped chan struct{} // closed when run returns

	mu        sync.Mutex
	connected bool
	closed    bool
	handlers  map[string]func([]byte)
	queue     []func() // deliveries and events, in order

	faults faults
	held   func()   // a swapped delivery, which follows the next one
	recent []func() // the last 100 deliveries, oldest first
}

// faults holds, for each fault, the number of messages that still get it.
type faults struct {
	drop, repeat, damage int
	swap                 int // with the message after it
}

func newBusNode(b *bus) *busNode {
	return &busNode{bus: b, connected: true, handlers: map[string]func([]byte){}}
}

// dial starts a new connection of the node. It keeps the faults.
func (n *busNode) dial(events linkEvents) (transport, error) {
	n.mu.Lock()
	n.events = events
	n.closed = false
	n.queue = nil
	n.held = nil
	n.handlers = map[string]func([]byte){}
	n.notify = make(chan struct{}, 1)
	n.done = make(chan struct{})
	n.stopped = make(chan struct{})
	if n.connected {
		n.enqueueLocked(events.onUp)
	}
	n.mu.Unlock()
	n.bus.mu.Lock()
	n.bus.nodes[n] = struct{}{}
	n.bus.mu.Unlock()
	go n.run()
	return n, nil
}

// enqueueLocked queues a delivery or an event. The caller holds n.mu.
func (n *busNode) enqueueLocked(f func()) {
	n.queue = append(n.queue, f)
	select {
	case n.notify <- struct{}{}:
	default:
	}
}

// run calls queued deliveries and events in order, until close.
func (n *busNode) run() {
	defer close(n.stopped)
	for {
		n.mu.Lock()
		queue := n.queue
		n.queue = nil
		n.mu.Unlock()
		for _, f := range queue {
			f()
		}
		if len(queue) > 0 {
			continue
		}
		select {
		case <-n.notify:
		case <-n.done:
			return
		}
	}
}

func (n *busNode) publish(subject string, data []byte) error {
	n.mu.Lock()
	up := n.connected && !n.closed
	n.mu.Unlock()
	if !up {
		return errBusDown
	}
	if len(data) > n.bus.payload {
		return errors.New("message is too large for the bus")
	}
	n.bus.send(n, subject, data)
	return nil
}

// send delivers a message to all nodes except its sender.
func (b *bus) send(from *busNode, subject string, data []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for to := range b.nodes {
		if to != from {
			to.deliverWithFaults(subject, slices.Clone(data))
		}
	}
}

// deliverWithFaults applies the faults that are due to a message and queues its delivery. A disconnected node
// does not receive it.
func (n *busNode) deliverWithFaults(subject string, data []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	handle := n.handlers[subject]
	if !n.connected || n.closed || handle == nil {
		return
	}
	if n.faults.drop > 0 {
		n.faults.drop--
		return
	}
	if n.faults.damage > 0 && len(data) > 0 {
		n.faults.damage--
		data[len(data)/2] ^= 0x40
	}
	deliver := func() { handle(data) }
	if n.faults.swap > 0 && n.held == nil {
		n.faults.swap--
		n.held = deliver
		return
	}
	n.recent = append(n.recent, deliver)
	if len(n.recent) > 100 {
		n.recent = n.recent[1:]
	}
	n.enqueueLocked(deliver)
	if n.faults.repeat > 0 {
		n.faults.repeat--
		n.enqueueLocked(deliver)
	}
	if n.held != nil {
		n.enqueueLocked(n.held)
		n.held = nil
	}
}

func (n *busNode) subscribe(subject string, handle func([]byte)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.handlers[subject] = handle
	return nil
}

// setConnected restores or cuts the connection.
func (n *busNode) setConnected(connected bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.connected == connected {
		return
	}
	n.connected = connected
	switch {
	case n.events.onUp == nil || n.closed:
	case connected:
		n.enqueueLocked(n.events.onUp)
	default:
		n.enqueueLocked(func() { n.events.onDown(errBusDown) })
	}
}

// redeliverEarlier repeats an earlier delivery. Age 0 is the last one, age 1 the one before it. It does
// nothing if the node is disconnected or has no delivery of that age.
func (n *busNode) redeliverEarlier(age int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.connected && !n.closed && len(n.recent) > age {
		n.enqueueLocked(n.recent[len(n.recent)-1-age])
	}
}

// setFaults sets the faults of the next messages.
func (n *busNode) setFaults(next faults) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = next
	if next.swap == 0 {
		n.held = nil
	}
}

// The bus does not deliver trace notes.
func (n *busNode) publishWithHeader(string, nats.Header, []byte) error         { return nil }
func (n *busNode) subscribeWithHeader(string, func(nats.Header, []byte)) error { return nil }

func (n *busNode) maxPayload() int           { return n.bus.payload }
func (n *busNode) flush(time.Duration) error { return nil }

func (n *busNode) close() {
	n.bus.mu.Lock()
	delete(n.bus.nodes, n)
	n.bus.mu.Unlock()
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	close(n.done)
	<-n.stopped
}
