package reverseproxy

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"binnacle/libs/certchain"
	"binnacle/services/apiserver/internal/proxy/clientcerts"
	"binnacle/services/apiserver/internal/proxy/responselimit"
)

const (
	// DialTimeout bounds the opening of a connection.
	DialTimeout      = 5 * time.Second
	handshakeTimeout = 5 * time.Second
	idleTimeout      = 90 * time.Second
	maxIdle          = 32
	// A connection that is idle for probeAfter is probed. It is closed if it stays silent for
	// probeTimeout.
	probeAfter   = 10 * time.Second
	probeTimeout = 5 * time.Second
)

// Connections returns a connection pool for proxied requests. Its client certificate may change.
func Connections(
	dial func(ctx context.Context, network, addr string) (net.Conn, error),
	security *tls.Config,
	certificate func() *tls.Certificate,
) *clientcerts.Pool {
	return clientcerts.NewPool(certificate, func(getCertificate clientcerts.CertificateFunc) *http.Transport {
		security := security.Clone()
		security.GetClientCertificate = getCertificate
		certchain.Bound(security)
		return newTransport(dial, security)
	})
}

// newTransport returns a transport that connects with dial and the TLS configuration security.
func newTransport(dial func(ctx context.Context, network, addr string) (net.Conn, error), security *tls.Config) *http.Transport {
	t := &http.Transport{
		DialContext:         dial,
		TLSClientConfig:     security,
		TLSHandshakeTimeout: handshakeTimeout,
		MaxIdleConnsPerHost: maxIdle,
		IdleConnTimeout:     idleTimeout,
		ForceAttemptHTTP2:   true,
		DisableCompression:  true,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: probeAfter, PingTimeout: probeTimeout},
	}
	responselimit.LimitTransport(t)
	return t
}
