// Package clientcerts manages connections to servers that authenticate this server by a client
// certificate. After the certificate is renewed, new requests use new connections. Otherwise a
// connection could outlive the old certificate, and a server that verifies the certificate with
// each request would then reject every request on it.
package clientcerts

import (
	"crypto/tls"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"binnacle/libs/serving/tlsfiles"
)

// CertificateFunc is the type of GetClientCertificate of a tls.Config.
type CertificateFunc = func(*tls.CertificateRequestInfo) (*tls.Certificate, error)

// Pool holds the connections to one or several servers. It is safe for concurrent use.
type Pool struct {
	certificate  func() *tls.Certificate
	newTransport func(CertificateFunc) *http.Transport

	mu      sync.Mutex // serializes calls of renew; leaf lock
	current atomic.Pointer[certConnections]
}

// certConnections holds the connections that use one certificate.
type certConnections struct {
	certificate *tls.Certificate
	*http.Transport
}

// NewPool returns a pool. certificate is called with each request and returns the same pointer
// until the certificate changes; nil means none. newTransport creates a transport that presents a
// certificate.
func NewPool(certificate func() *tls.Certificate, newTransport func(CertificateFunc) *http.Transport) *Pool {
	p := &Pool{certificate: certificate, newTransport: newTransport}
	p.renew()
	return p
}

// Fixed returns a pool for connections whose certificate, if any, does not change.
func Fixed(t *http.Transport) *Pool {
	p := &Pool{certificate: func() *tls.Certificate { return nil }}
	p.current.Store(&certConnections{Transport: t})
	return p
}

// Transport returns the transport for the next request.
func (p *Pool) Transport() *http.Transport {
	c := p.certificate()
	if now := p.current.Load(); now.certificate == c {
		return now.Transport
	}
	return p.renew()
}

// renew replaces the transport after a change of the client certificate.
func (p *Pool) renew() *http.Transport {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.certificate() // another renewal may have happened while waiting for the lock
	before := p.current.Load()
	if before != nil && before.certificate == c {
		return before.Transport
	}
	presented := c
	if presented == nil {
		presented = &tls.Certificate{} // an empty certificate means none for crypto/tls
	}
	next := p.newTransport(func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return presented, nil })
	p.current.Store(&certConnections{c, next})
	if before != nil {
		before.CloseIdleConnections() // busy ones close after their idle timeout
	}
	return next
}

// RoundTrip implements http.RoundTripper.
func (p *Pool) RoundTrip(r *http.Request) (*http.Response, error) {
	return p.Transport().RoundTrip(r)
}

// CloseIdleConnections closes the idle connections.
func (p *Pool) CloseIdleConnections() { p.current.Load().CloseIdleConnections() }

// reloadInterval is the minimum interval between two reads of the files.
const reloadInterval = time.Second

// ReloadingCertificate returns a function for NewPool that returns the certificate in a pair of
// files. The function reads the files again at most once per reloadInterval. It returns the
// previous certificate while the files are unreadable or do not match, for example during a
// renewal.
func ReloadingCertificate(pair *tlsfiles.Pair) func() *tls.Certificate {
	var last atomic.Int64
	started := time.Now()
	return func() *tls.Certificate {
		now := int64(time.Since(started))
		if before := last.Load(); now-before >= int64(reloadInterval) && last.CompareAndSwap(before, now) {
			_, _ = pair.Reload() // on failure it keeps the current pair
		}
		return pair.Certificate()
	}
}
