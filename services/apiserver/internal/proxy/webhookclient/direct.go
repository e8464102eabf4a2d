package webhookclient

import (
	"net"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"binnacle/services/apiserver/internal/proxy/clientcerts"
)

// Direct makes a client for a service that is configured elsewhere: its address
// and its certificates may change at any time, so each configuration has a client
// and connections of its own, which release lets go of. Redirects are followed, but who the
// server is, only the host of at is told, which is the one that is configured.
// Bodies of answers longer than limit bytes are errors. Metrics may be nil.
func Direct(config *rest.Config, at *url.URL, limit int64, m *Metrics) (client *http.Client, release func(), err error) {
	c, err := config.TransportConfig()
	if err != nil {
		return nil, nil, err
	}
	c.DisableCompression = false
	base, wrapped, err := direct(c)
	if err != nil {
		return nil, nil, err
	}
	strangers, plain, err := direct(&transport.Config{
		UserAgent: c.UserAgent, Proxy: c.Proxy, DialHolder: c.DialHolder,
		TLS: transport.TLSConfig{
			Insecure: c.TLS.Insecure, ServerName: c.TLS.ServerName, CAFile: c.TLS.CAFile, CAData: c.TLS.CAData, NextProtos: c.TLS.NextProtos,
		},
	})
	if err != nil {
		return nil, nil, err
	}
	all := &introduced{origin: originOf(at), known: wrapped, strangers: plain}
	forget := m.hold(at.Host)
	return &http.Client{Transport: &bounded{m.around(all, at.Host), limit}}, func() {
		forget()
		base.CloseIdleConnections()
		strangers.CloseIdleConnections()
	}, nil
}

// direct are connections, and what tells who the server is on them.
func direct(c *transport.Config) (*clientcerts.Pool, http.RoundTripper, error) {
	base, err := pool(c)
	if err != nil {
		return nil, nil, err
	}
	wrapped, err := transport.HTTPWrappersForConfig(c, base)
	return base, wrapped, err
}

// introduced tells one host who the server is, and no other one that it is sent to.
type introduced struct {
	origin           string
	known, strangers http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (i *introduced) RoundTrip(r *http.Request) (*http.Response, error) {
	if originOf(r.URL) == i.origin {
		return i.known.RoundTrip(r)
	}
	return i.strangers.RoundTrip(r)
}

// originOf is the scheme, host and port of an address.
func originOf(u *url.URL) string {
	scheme, port := strings.ToLower(u.Scheme), u.Port()
	if port == "" {
		if port = "443"; scheme == "http" {
			port = "80"
		}
	}
	return scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}
