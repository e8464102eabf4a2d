package fanout

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nats.go"
)

// transport carries messages between replicas. All methods are safe for concurrent use. It may
// lose, repeat and delay messages, and does not deliver them to the publishing transport itself.
type transport interface {
	// publish sends data, which it does not keep, or fails at once.
	publish(subject string, data []byte) error
	// subscribe calls handle for each received message, in order and without overlap. handle must
	// not block or keep the data.
	subscribe(subject string, handle func([]byte)) error
	// publishWith and subscribeWith are the same for messages with a header.
	publishWith(subject string, header nats.Header, data []byte) error
	subscribeWith(subject string, handle func(nats.Header, []byte)) error
	// maxPayload returns the largest size that publish accepts, in bytes.
	maxPayload() int
	// flush waits until all published messages have left, at most for the given time.
	flush(time.Duration) error
	close()
}

// linkEvents are the callbacks of a transport. It calls them from its own goroutines.
type linkEvents struct {
	up   func()
	down func(error)
	// lost reports that received messages were dropped.
	lost func()
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

// noPeers is a transport that has no peers. A server without NATS uses it.
type noPeers struct{}

func dialNoPeers(ev linkEvents) (transport, error) {
	ev.up()
	return noPeers{}, nil
}

func (noPeers) publish(string, []byte) error                          { return nil }
func (noPeers) subscribe(string, func([]byte)) error                  { return nil }
func (noPeers) publishWith(string, nats.Header, []byte) error         { return nil }
func (noPeers) subscribeWith(string, func(nats.Header, []byte)) error { return nil }
func (noPeers) maxPayload() int                                       { return embeddedPayload }
func (noPeers) flush(time.Duration) error                             { return nil }
func (noPeers) close()                                                {}

// natsTransport is a NATS connection.
type natsTransport struct {
	conn          *nats.Conn
	closed        chan struct{}
	subscriptions subscriptions
}

// natsDialer connects to the servers of the options, or through inProcess. The heartbeat scales the
// delay between attempts to subscribe.
func natsDialer(o Options, inProcess nats.InProcessConnProvider, id string, beat time.Duration, log *slog.Logger) dialer {
	return func(ev linkEvents) (transport, error) {
		t := &natsTransport{closed: make(chan struct{}), subscriptions: subscriptions{wait: refusedBeats * beat}}
		opts := nats.Options{
			Servers: o.Servers,
			Name:    "binnacle apiserver " + id,
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
			ConnectedCB:          func(*nats.Conn) { ev.up() },
			ReconnectedCB:        func(*nats.Conn) { ev.up() },
			DisconnectedErrCB:    func(_ *nats.Conn, err error) { ev.down(err) },
			ClosedCB:             func(*nats.Conn) { close(t.closed) },
			ReconnectErrCB:       reportChanges(log),
			AsyncErrorCB: func(conn *nats.Conn, _ *nats.Subscription, err error) {
				if t.subscriptions.refused(conn, err) {
					return
				}
				log.Warn("NATS reports an error", "error", err)
				if errors.Is(err, nats.ErrSlowConsumer) {
					ev.lost()
				}
			},
		}
		if inProcess != nil {
			opts.InProcessServer = inProcess
		}
		if err := secure(&opts, o); err != nil {
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

// reportChanges logs why connecting fails, and again when the reason changes. The callback is
// called by one goroutine.
func reportChanges(log *slog.Logger) nats.ConnErrHandler {
	last := ""
	return func(_ *nats.Conn, err error) {
		if err == nil || err.Error() == last {
			return
		}
		last = err.Error()
		log.Warn("failed to connect to NATS; retrying", "error", err)
	}
}

// secure adds certificates and credentials. Their files are read again for every connection.
func secure(opts *nats.Options, o Options) error {
	var more []nats.Option
	if o.CAFile != "" {
		more = append(more, nats.RootCAs(o.CAFile))
	}
	if o.CertFile != "" {
		more = append(more, nats.ClientCert(o.CertFile, o.KeyFile))
	}
	if o.CredentialsFile != "" {
		// The client reads it when it connects; a wrong name is detected here.
		if _, err := os.Stat(o.CredentialsFile); err != nil {
			return fmt.Errorf("set up NATS connection: %w", err)
		}
		more = append(more, nats.UserCredentials(o.CredentialsFile))
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
	return t.subscriptions.listen(t.conn, subject, func(m *nats.Msg) { handle(m.Data) })
}

func (t *natsTransport) publishWith(subject string, header nats.Header, data []byte) error {
	return t.conn.PublishMsg(&nats.Msg{Subject: subject, Header: header, Data: data})
}

func (t *natsTransport) subscribeWith(subject string, handle func(nats.Header, []byte)) error {
	return t.subscriptions.listen(t.conn, subject, func(m *nats.Msg) { handle(m.Header, m.Data) })
}

func (t *natsTransport) maxPayload() int { return int(t.conn.MaxPayload()) }

func (t *natsTransport) flush(d time.Duration) error { return t.conn.FlushTimeout(d) }

// close returns when no callback runs any more.
func (t *natsTransport) close() {
	t.subscriptions.close()
	t.conn.Close()
	<-t.closed
}
