package webhookclient

import (
	"net"
	"net/http"
	"net/url"
	"strconv"
)

// selfHost is the host and port by which webhooks name the API server itself.
const selfHost = "kubernetes.default.svc:443"

// InProcess returns the client of a webhook that is the API server itself, and nil for any other
// webhook, or if own is nil. own reaches the server as its own user. Response bodies longer than
// limit bytes are errors. Metrics may be nil.
func InProcess(own http.RoundTripper, at *url.URL, limit int64, m *Metrics) *http.Client {
	port := at.Port()
	if port == "" {
		port = strconv.Itoa(defaultPort)
	}
	if own == nil || at.Scheme != "https" || net.JoinHostPort(at.Hostname(), port) != selfHost {
		return nil
	}
	return &http.Client{
		Transport:     &bounded{m.around(own, at.Host), limit},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
