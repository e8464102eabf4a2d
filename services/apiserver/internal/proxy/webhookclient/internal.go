package webhookclient

import (
	"net"
	"net/http"
	"net/url"
	"strconv"
)

// selfHost is the host and port of the service kubernetes, which is the API server itself.
const selfHost = "kubernetes.default.svc:443"

// NewInternalClient returns the client of a webhook that is the API server itself. It returns nil
// for any other webhook, or if internal is nil. internal sends requests as the server's own user.
// Response bodies longer than limit bytes are errors. m may be nil.
func NewInternalClient(internal http.RoundTripper, at *url.URL, limit int64, m *Metrics) *http.Client {
	port := at.Port()
	if port == "" {
		port = strconv.Itoa(defaultPort)
	}
	if internal == nil || at.Scheme != "https" || net.JoinHostPort(at.Hostname(), port) != selfHost {
		return nil
	}
	return &http.Client{
		Transport:     &limitedTransport{m.instrument(internal, at.Host), limit},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
