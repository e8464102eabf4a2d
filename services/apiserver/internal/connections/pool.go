// Package connections has those to servers that know this one by a client certificate. When it is
// renewed, requests that follow have new connections: a server that looks at certificates with each
// request would refuse all of them on a connection that outlives the old one.
package connections

import (
	"crypto/tls"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"binnacle/libs/serving/tlsfiles"
)

// Show is a tls.Config's GetClientCertificate.
type Show = func(*tls.CertificateRequestInfo) (*tls.Certificate, error)

// Pool has the connections to one server, or to several. It can be used by many at a time.
type Pool struct {
	certificate func() *tls.Certificate
	open        func(Show) *http.Transport

	mu      sync.Mutex // serialises renewals; a leaf
	current atomic.Pointer[shown]
}

// shown are the connections on which one certificate is shown.
type shown struct {
	certificate *tls.Certificate
	*http.Transport
}

// NewPool makes a pool. The function certificate is asked with each request, and returns the same
// pointer until there is another certificate; nil is none. By open, connections are made that
// show one.
func NewPool(certificate func() *tls.Certificate, open func(Show) *http.Transport) *Pool {
	p := &Pool{certificate: certificate, open: open}
	p.renew()
	return p
}

// Fixed are connections whose certificate, if they have any, does not change.
func Fixed(t *http.Transport) *Pool {
	p := &Pool{certificate: func() *tls.Certificate { return nil }}
	p.current.Store(&shown{Transport: t})
	return p
}

// Transport returns the connections for the next request.
func (p *Pool) Transport() *http.Transport {
	c := p.certificate()
	if now := p.current.Load(); now.certificate == c {
		return now.Transport
	}
	return p.renew()
}

func (p *Pool) renew() *http.Transport {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.certificate() // who waited for another has seen an older one
	before := p.current.Load()
	if before != nil && before.certificate == c {
		return before.Transport
	}
	show := c
	if show == nil {
		show = &tls.Certificate{} // none, as crypto/tls has it
	}
	next := p.open(func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return show, nil })
	p.current.Store(&shown{c, next})
	if before != nil {
		before.CloseIdleConnections() // others when they are idle for as long as they may be
	}
	return next
}

// RoundTrip implements http.RoundTripper.
func (p *Pool) RoundTrip(r *http.Request) (*http.Response, error) {
	return p.Transport().RoundTrip(r)
}

// CloseIdleConnections lets go of connections that nobody uses.
func (p *Pool) CloseIdleConnections() { p.current.Load().CloseIdleConnections() }

// lookAgain is how often files are looked at.
const lookAgain = time.Second

// Followed returns what a pool asks for the certificate of a pair of files: who asks has them read
// again, once a second at most. While they cannot be read, or do not belong to each other, as halves of
// what is being renewed, the certificate stays what it was.
func Followed(pair *tlsfiles.Pair) func() *tls.Certificate {
	var last atomic.Int64
	begun := time.Now()
	return func() *tls.Certificate {
		now := int64(time.Since(begun))
		if before := last.Load(); now-before >= int64(lookAgain) && last.CompareAndSwap(before, now) {
			_, _ = pair.Reload() // which keeps what it has
		}
		return pair.Certificate()
	}
}
