package kubeletproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"
)

// lifeKey is the context key of the request's context for which a connection is opened. A transport
// would finish opening it after the request has ended, for later requests. A client that repeatedly
// disconnects could then have any number of connections being opened.
type lifeKey struct{}

func withLife(ctx context.Context) context.Context { return context.WithValue(ctx, lifeKey{}, ctx) }

// within returns a context that also ends with the request.
func within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if life, ok := ctx.Value(lifeKey{}).(context.Context); ok {
		stop := context.AfterFunc(life, cancel)
		return ctx, func() { stop(); cancel() }
	}
	return ctx, cancel
}

// ended returns a dial function that also ends with the request.
func ended(dial Dial) Dial {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := within(ctx)
		defer cancel()
		return dial(ctx, network, addr)
	}
}

// errHandshake is the error of the transport.
var errHandshake = errors.New("net/http: TLS handshake timeout")

// secured returns a dial function with TLS that also ends with the request. atMost bounds the
// handshake; 0 means no bound.
func secured(dial Dial, c *tls.Config, atMost time.Duration) Dial {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := within(ctx)
		defer cancel()
		raw, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if atMost > 0 {
			ctx, cancel = context.WithTimeoutCause(ctx, atMost, errHandshake)
			defer cancel()
		}
		c := c.Clone()
		if c.ServerName, _, err = net.SplitHostPort(addr); err != nil {
			_ = raw.Close()
			return nil, err
		}
		conn := tls.Client(raw, c)
		if err := conn.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			if late := context.Cause(ctx); errors.Is(late, errHandshake) {
				return nil, late
			}
			return nil, err
		}
		return conn, nil
	}
}
