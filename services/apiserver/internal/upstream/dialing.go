package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"
)

// lifeKey is of the context of the request that a connection is made for. A transport makes it
// to the end when the request has ended, for the next one: a client who leaves and comes again
// would have as many on the way as he likes.
type lifeKey struct{}

func withLife(ctx context.Context) context.Context { return context.WithValue(ctx, lifeKey{}, ctx) }

// within is a context that ends with the request, too.
func within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if life, ok := ctx.Value(lifeKey{}).(context.Context); ok {
		stop := context.AfterFunc(life, cancel)
		return ctx, func() { stop(); cancel() }
	}
	return ctx, cancel
}

// ended is a dial that ends with the request.
func ended(dial Dial) Dial {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := within(ctx)
		defer cancel()
		return dial(ctx, network, addr)
	}
}

// errHandshake is the transport's own.
var errHandshake = errors.New("net/http: TLS handshake timeout")

// secured is a dial with TLS that ends with the request, and lasts no longer than that; 0 is no bound.
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
