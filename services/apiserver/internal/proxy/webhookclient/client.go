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

// NewClient returns a client for a webhook at serverURL. config has its credentials, trusted CAs and
// dialer. Every call returns a new client with its own connections, because addresses and
// certificates may change at any time. release closes the connections. The client follows redirects,
// but sends credentials only to the host of serverURL. Response bodies longer than limit bytes are
// errors. metrics may be nil.
func NewClient(config *rest.Config, serverURL *url.URL, limit int64, metrics *Metrics) (client *http.Client, release func(), err error) {
	c, err := config.TransportConfig()
	if err != nil {
		return nil, nil, err
	}
	c.DisableCompression = false
	base, authenticated, err := newTransport(c)
	if err != nil {
		return nil, nil, err
	}
	anonymousBase, anonymous, err := newTransport(&transport.Config{
		UserAgent:  c.UserAgent,
		Proxy:      c.Proxy,
		DialHolder: c.DialHolder,
		TLS: transport.TLSConfig{
			Insecure:   c.TLS.Insecure,
			ServerName: c.TLS.ServerName,
			CAFile:     c.TLS.CAFile,
			CAData:     c.TLS.CAData,
			NextProtos: c.TLS.NextProtos,
		},
	})
	if err != nil {
		return nil, nil, err
	}
	t := &originTransport{origin: originOf(serverURL), authenticated: authenticated, anonymous: anonymous}
	releaseMetrics := metrics.retain(serverURL.Host)
	return &http.Client{Transport: &limitedTransport{metrics.instrument(t, serverURL.Host), limit}}, func() {
		releaseMetrics()
		base.CloseIdleConnections()
		anonymousBase.CloseIdleConnections()
	}, nil
}

// newTransport returns a connection pool, and a transport on top of it that adds the credentials of
// c to requests.
func newTransport(c *transport.Config) (*clientcerts.Pool, http.RoundTripper, error) {
	base, err := newPool(c)
	if err != nil {
		return nil, nil, err
	}
	wrapped, err := transport.HTTPWrappersForConfig(c, base)
	return base, wrapped, err
}

// originTransport sends credentials to one origin only.
type originTransport struct {
	origin                   string
	authenticated, anonymous http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *originTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if originOf(r.URL) == t.origin {
		return t.authenticated.RoundTrip(r)
	}
	return t.anonymous.RoundTrip(r)
}

// originOf returns the scheme, host and port of an address.
func originOf(u *url.URL) string {
	scheme, port := strings.ToLower(u.Scheme), u.Port()
	if port == "" {
		port = "443"
		if scheme == "http" {
			port = "80"
		}
	}
	return scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}
