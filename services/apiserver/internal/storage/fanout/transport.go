package fanout

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// transport carries messages between replicas. All methods are safe for concurrent use. It may
// lose, repeat and delay messages, and does not deliver them to the publishing transport itself.
type transport interface {
	// publish sends data, which it does not keep, or fails immediately.
	publish(subject string, data []byte) error
	// subscribe calls handle for each received message, in order and without overlap. handle must
	// not block or keep the data.
	subscribe(subject string, handle func([]byte)) error
	// publishWithHeader and subscribeWithHeader are the same for messages with a header.
	publishWithHeader(subject string, header nats.Header, data []byte) error
	subscribeWithHeader(subject string, handle func(nats.Header, []byte)) error
	// maxPayload returns the largest size that publish accepts, in bytes.
	maxPayload() int
	// flush waits until all published messages have left, at most for the given time.
	flush(time.Duration) error
	close()
}

// linkEvents are the callbacks of a transport. It calls them from its own goroutines.
type linkEvents struct {
	onUp   func()
	onDown func(error)
	// onLost reports that received messages were dropped.
	onLost func()
}

// dialer creates a transport. It does not wait for a connection.
type dialer func(linkEvents) (transport, error)

// Timeouts of the connection. Heartbeats detect a silent peer sooner. Pings only help the client to
// leave a dead server for another.
const (
	pingInterval    = 5 * time.Second
	maxPings        = 2
	connectTimeout  = 5 * time.Second
	reconnectWait   = 250 * time.Millisecond
	reconnectJitter = 250 * time.Millisecond
	flusherTimeout  = 5 * time.Second
)

// isolatedPayload is the message limit of a transport without peers.
const isolatedPayload = 8 << 20

// isolatedTransport is a transport that has no peers. A server without NATS uses it.
type isolatedTransport struct{}

func dialIsolated(ev linkEvents) (transport, error) {
	ev.onUp()
	return isolatedTransport{}, nil
}

func (isolatedTransport) publish(string, []byte) error                                { return nil }
func (isolatedTransport) subscribe(string, func([]byte)) error                        { return nil }
func (isolatedTransport) publishWithHeader(string, nats.Header, []byte) error         { return nil }
func (isolatedTransport) subscribeWithHeader(string, func(nats.Header, []byte)) error { return nil }
func (isolatedTransport) maxPayload() int                                             { return isolatedPayload }
func (isolatedTransport) flush(time.Duration) error                                   { return nil }
func (isolatedTransport) close()                                                      {}

// natsTransport is a NATS connection.
type natsTransport struct {
	conn          *nats.Conn
	closed        chan struct{}
	subscriptions subscriptionSet
}

// natsDialer connects to the servers of the options. The heartbeat scales the delay between attempts
// to subscribe.
func natsDialer(options Options, replicaID string, heartbeat time.Duration, log *slog.Logger) dialer {
	return func(ev linkEvents) (transport, error) {
		t := &natsTransport{closed: make(chan struct{}), subscriptions: subscriptionSet{wait: retryHeartbeats * heartbeat}}
		opts := nats.Options{
			Servers: options.Servers,
			Name:    "binnacle apiserver " + replicaID,
			// A publisher passes messages to its own replica directly.
			NoEcho:               true,
			AllowReconnect:       true,
			MaxReconnect:         -1,
			RetryOnFailedConnect: true,
			ReconnectWait:        reconnectWait,
			ReconnectJitter:      reconnectJitter,
			ReconnectJitterTLS:   reconnectJitter,
			// Messages published without a connection are stale when it returns.
			ReconnectBufSize:     -1,
			Timeout:              connectTimeout,
			PingInterval:         pingInterval,
			MaxPingsOut:          maxPings,
			FlusherTimeout:       flusherTimeout,
			SubChanLen:           nats.DefaultMaxChanLen,
			IgnoreAuthErrorAbort: true,
			ConnectedCB:          func(*nats.Conn) { ev.onUp() },
			ReconnectedCB:        func(*nats.Conn) { ev.onUp() },
			DisconnectedErrCB:    func(_ *nats.Conn, err error) { ev.onDown(err) },
			ClosedCB:             func(*nats.Conn) { close(t.closed) },
			ReconnectErrCB:       logNewErrors(log),
			AsyncErrorCB: func(conn *nats.Conn, _ *nats.Subscription, err error) {
				if t.subscriptions.handleRejection(conn, err) {
					return
				}
				log.Warn("NATS reports an error", "error", err)
				if errors.Is(err, nats.ErrSlowConsumer) {
					ev.onLost()
				}
			},
		}
		if err := addCredentials(&opts, options); err != nil {
			return nil, err
		}
		conn, err := opts.Connect()
		if err != nil {
			return nil, fmt.Errorf("connect to NATS: %w", err)
		}
		t.conn = conn
		return t, nil
	}
}

// logNewErrors logs why connecting fails, and again when the reason changes. The callback is
// called by one goroutine.
func logNewErrors(log *slog.Logger) nats.ConnErrHandler {
	last := ""
	return func(_ *nats.Conn, err error) {
		if err == nil || err.Error() == last {
			return
		}
		last = err.Error()
		log.Warn("failed to connect to NATS; retrying", "error", err)
	}
}

// addCredentials adds certificates and credentials. Their files are read again for every
// connection.
func addCredentials(opts *nats.Options, options Options) error {
	var more []nats.Option
	if options.CAFile != "" {
		more = append(more, nats.RootCAs(options.CAFile))
	}
	if options.CertFile != "" {
		more = append(more, nats.ClientCert(options.CertFile, options.KeyFile))
	}
	if options.CredentialsFile != "" {
		// The client reads it when it connects; a wrong name is detected here.
		if _, err := os.Stat(options.CredentialsFile); err != nil {
			return fmt.Errorf("set up NATS connection: %w", err)
		}
		more = append(more, nats.UserCredentials(options.CredentialsFile))
	}
	for _, set := range more {
		if err := set(opts); err != nil {
			return fmt.Errorf("set up NATS connection: %w", err)
		}
	}
	return nil
}

func (t *natsTransport) publish(subject string, data []byte) error {
	return t.conn.Publish(subject, data)
}

func (t *natsTransport) subscribe(subject string, handle func([]byte)) error {
	return t.subscriptions.subscribe(t.conn, subject, func(m *nats.Msg) { handle(m.Data) })
}

func (t *natsTransport) publishWithHeader(subject string, header nats.Header, data []byte) error {
	return t.conn.PublishMsg(&nats.Msg{Subject: subject, Header: header, Data: data})
}

func (t *natsTransport) subscribeWithHeader(subject string, handle func(nats.Header, []byte)) error {
	return t.subscriptions.subscribe(t.conn, subject, func(m *nats.Msg) { handle(m.Header, m.Data) })
}

func (t *natsTransport) maxPayload() int { return int(t.conn.MaxPayload()) }

func (t *natsTransport) flush(d time.Duration) error { return t.conn.FlushTimeout(d) }

// close returns when no callback runs any more.
func (t *natsTransport) close() {
	t.subscriptions.close()
	t.conn.Close()
	<-t.closed
}

// retryHeartbeats is the number of heartbeats between the rejection of a subscription and the next
// attempt.
const retryHeartbeats = 5

// subscriptionSet holds the subscriptions of a connection. The server does not restore a
// subscription that it rejected, or removed because permissions changed, while the connection
// lasts. So subscriptionSet retries it until it succeeds.
type subscriptionSet struct {
	wait      time.Duration // between a rejection and the next attempt
	mu        sync.Mutex    // guards the fields below; only locks of the connection are acquired under it
	bySubject map[string]*subscription
	closed    bool
}

// subscription is the subscription to one subject.
type subscription struct {
	current     *nats.Subscription
	handle      nats.MsgHandler
	retry       *time.Timer // set while the next attempt is pending
	lastAttempt time.Time   // zero before the first retry
}

// subscribe subscribes to a subject. Calls of handle do not overlap, even if the subscription is
// replaced.
func (e *subscriptionSet) subscribe(conn *nats.Conn, subject string, handle nats.MsgHandler) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var serial sync.Mutex
	subscribed := &subscription{handle: func(m *nats.Msg) {
		serial.Lock()
		defer serial.Unlock()
		handle(m)
	}}
	var err error
	if subscribed.current, err = conn.Subscribe(subject, subscribed.handle); err != nil {
		return err
	}
	if e.bySubject == nil {
		e.bySubject = map[string]*subscription{}
	}
	e.bySubject[subject] = subscribed
	return nil
}

// handleRejection schedules another attempt if an error of the connection rejects a subscription. It
// returns true if the previous attempt for that subscription was rejected too: then the caller need
// not log the error again.
func (e *subscriptionSet) handleRejection(conn *nats.Conn, err error) (repeated bool) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for subject, subscribed := range e.bySubject { // only the text of the error has the subject
		if e.closed || !strings.Contains(err.Error(), "Subscription to "+strconv.Quote(subject)) {
			continue
		}
		repeated = time.Since(subscribed.lastAttempt) < e.wait
		if subscribed.retry == nil {
			subscribed.retry = time.AfterFunc(e.wait, func() { e.resubscribe(conn, subject) })
		}
	}
	return repeated
}

// resubscribe replaces the subscription to a subject.
func (e *subscriptionSet) resubscribe(conn *nats.Conn, subject string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	subscribed := e.bySubject[subject]
	subscribed.retry = nil
	subscribed.lastAttempt = time.Now()
	_ = subscribed.current.Unsubscribe()                                    // the server may have removed it already
	if sub, err := conn.Subscribe(subject, subscribed.handle); err == nil { // otherwise the connection is closed
		subscribed.current = sub
	}
}

// close stops all pending attempts to subscribe.
func (e *subscriptionSet) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	for _, subscribed := range e.bySubject {
		if subscribed.retry != nil {
			subscribed.retry.Stop()
		}
	}
}

const (
	// minPartPayload is the smallest payload limit at which large messages are split.
	minPartPayload = 1 << 10
	// maxParts is the number of parts of the largest message at that limit.
	maxParts = maxMessageBytes / minPartPayload
)

// part is a piece of a message that exceeds the server's payload limit.
type part struct {
	index, total int
	data         []byte // of the encoded message
}

// partSize returns an upper bound of the encoded size of a part without its data, in bytes.
func partSize(cluster string) int { return messageSize(cluster) + 3*binary.MaxVarintLen64 }

// appendPart appends the encoding of a part of m to b.
func appendPart(b []byte, m *message, p part) []byte {
	start := len(b)
	flags := byte(flagPart)
	if m.loaded {
		flags |= flagLoaded
	}
	b = appendHead(b, m, flags, 0)
	b = binary.AppendUvarint(b, uint64(p.index))
	b = binary.AppendUvarint(b, uint64(p.total))
	b = appendString(b, string(p.data))
	return appendChecksum(b, start)
}

// readPart reads the fields of a part after its head. The result shares memory with the input.
func (r *messageReader) readPart() (*part, error) {
	index := r.readNumber()
	total := r.readNumber()
	data := r.readBytes()
	switch {
	case r.err != nil:
		return nil, r.err
	case total < 2 || total > maxParts || index >= total:
		return nil, fmt.Errorf("part %d of %d", index, total)
	case len(data) == 0:
		return nil, errors.New("a part is empty")
	}
	return &part{index: int(index), total: int(total), data: data}, nil
}

// partAssembler joins the parts of one message. Parts must arrive in order. Otherwise the message
// is dropped, which shows as a gap. One goroutine owns it.
type partAssembler struct {
	head message // head of the parts so far
	next int     // index of the expected part; with 0, a message may begin
	data []byte
}

// addPart adds a part, and returns the encoded message once it is complete.
func (a *partAssembler) addPart(m *message) (complete []byte, ok bool) {
	p := m.part
	if p.index == 0 {
		*a = partAssembler{head: message{
			cluster:  m.cluster,
			epoch:    m.epoch,
			chain:    m.chain,
			previous: m.previous,
			revision: m.revision,
		}}
	}
	if p.index != a.next || a.head.epoch != m.epoch ||
		a.head.chain != m.chain || a.head.previous != m.previous || a.head.revision != m.revision ||
		len(a.data)+len(p.data) > maxMessageBytes {
		*a = partAssembler{}
		return nil, false
	}
	a.data = append(a.data, p.data...)
	a.next++
	if a.next < p.total {
		return nil, false
	}
	complete = a.data
	*a = partAssembler{}
	return complete, true
}

// sendParts publishes an encoded message in parts of at most size bytes.
func (p *publisher) sendParts(m *message, encoded []byte, size int) error {
	total := (len(encoded) + size - 1) / size
	for i := range total {
		end := min((i+1)*size, len(encoded))
		data := appendPart(nil, m, part{index: i, total: total, data: encoded[i*size : end]})
		if err := p.fanout.transport.publish(p.fanout.changeSubject, data); err != nil {
			return err
		}
		p.fanout.metrics.recordPublished(len(data))
	}
	return nil
}
