package kubeletproxy

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"binnacle/libs/certchain"
	"binnacle/services/apiserver/internal/request"
)

// mergeRequestContext returns a context that also ends with the request for which a connection is
// opened. A transport would finish opening it after the request has ended, for later requests. A
// client that repeatedly disconnects could then have any number of connections being opened.
func mergeRequestContext(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(request.LifetimeOf(ctx), cancel)
	return ctx, func() { stop(); cancel() }
}

// dialWithRequest returns a dial function that also ends with the request.
func dialWithRequest(dial Dial) Dial {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := mergeRequestContext(ctx)
		defer cancel()
		return dial(ctx, network, addr)
	}
}

// dialTLSWithRequest returns a dial function with TLS that also ends with the request. timeout
// bounds the handshake; 0 means no bound.
func dialTLSWithRequest(dial Dial, c *tls.Config, timeout time.Duration) Dial {
	return dialWithRequest(certchain.DialTLS(dial, c, timeout))
}
