// Package certchain verifies the certificates that the other side of a TLS connection presents.
//
// The cost of a signature check depends on the key of the issuer. crypto/x509 checks up to a
// hundred signatures with the keys of presented intermediate certificates, whether or not these are
// trusted. A client without credentials can choose keys for which all checks together take a
// minute. Verify uses only the keys of certificates with a chain to a root.
//
// The API server, package callerauth for the webhooks, and the console verify client certificates.
// The API server also verifies webhooks, extension servers, pods and OIDC providers, because a
// tenant may own them. The package has no state.
package certchain

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"
)

// MaxCertificates is the maximum number of presented certificates. Chains have three or four.
const MaxCertificates = 10

// Verify verifies the first certificate with the others as intermediates, which may be in any
// order. It ignores o.Intermediates.
func Verify(presented []*x509.Certificate, options x509.VerifyOptions) ([][]*x509.Certificate, error) {
	if len(presented) > MaxCertificates {
		return nil, fmt.Errorf("%d certificates were presented; at most %d are verified", len(presented), MaxCertificates)
	}
	options.Intermediates = trustedPool(presented[1:], options)
	return presented[0].Verify(options)
}

// trustedPool returns the certificates that have a chain to a root, directly or through each other.
func trustedPool(certificates []*x509.Certificate, verifyOptions x509.VerifyOptions) *x509.CertPool {
	verifyOptions.Intermediates = x509.NewCertPool()
	verifyOptions.KeyUsages = []x509.ExtKeyUsage{x509.ExtKeyUsageAny}
	verifyOptions.DNSName = ""
	for n := -1; n != len(certificates); { // until a round adds no certificate to the pool
		n = len(certificates)
		var rest []*x509.Certificate
		for i := n - 1; i >= 0; i-- { // usually the last certificate is signed by a root
			c := certificates[i]
			if _, err := c.Verify(verifyOptions); err != nil {
				rest = append([]*x509.Certificate{c}, rest...)
			} else {
				verifyOptions.Intermediates.AddCert(c)
			}
		}
		certificates = rest
	}
	return verifyOptions.Intermediates
}

// Bound makes a client verify servers with Verify. It affects only a configuration with a
// ServerName that verifies servers at all.
func Bound(config *tls.Config) {
	roots, name := config.RootCAs, config.ServerName
	if config.InsecureSkipVerify || name == "" {
		return
	}
	config.InsecureSkipVerify = true //nolint:gosec // VerifyConnection verifies
	config.VerifyConnection = func(s tls.ConnectionState) error {
		_, err := Verify(s.PeerCertificates, x509.VerifyOptions{Roots: roots, DNSName: name})
		if err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
		}
		return nil
	}
}

// errHandshake has the text that http.Transport returns for a handshake that takes too long.
var errHandshake = errors.New("net/http: TLS handshake timeout")

// Dial is the type of http.Transport.DialContext.
type Dial = func(ctx context.Context, network, addr string) (net.Conn, error)

// DialTLS returns a function for http.Transport.DialTLSContext that verifies servers with Verify,
// for the ServerName of config or else the host of the address. timeout bounds the handshake; 0
// means no bound.
func DialTLS(dial Dial, config *tls.Config, timeout time.Duration) Dial {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		config := config.Clone()
		if config.ServerName == "" {
			host, _, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			config.ServerName = host
		}
		Bound(config)
		raw, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, timeout, errHandshake)
			defer cancel()
		}
		conn := tls.Client(raw, config)
		if err := conn.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			if timedOut := context.Cause(ctx); errors.Is(timedOut, errHandshake) {
				return nil, timedOut
			}
			return nil, err
		}
		return conn, nil
	}
}
