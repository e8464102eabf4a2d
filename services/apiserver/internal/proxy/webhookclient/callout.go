// Package webhookclient makes clients of the services that the API server asks: a
// kubeconfig says where such a service is and who the server is there
// (specification: "Authorization", webhook configuration file); packages that ask
// it call Load once. Webhooks that objects of the API name are asked through
// Webhooks, which finds those that are services of the cluster by Services.
//
// What a service answers is decoded within bounds: Answers are those of webhooks that are read
// and decoded at a time, Service.Decode is for reviews.
//
// A service may stop answering without closing its connections. They are probed,
// so that questions under way fail after a few seconds, and those that follow
// have a new connection.
package webhookclient

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"

	"binnacle/libs/serving/tlsfiles"
	"binnacle/libs/version"
	"binnacle/services/apiserver/internal/proxy/clientcerts"
)

const (
	dialTimeout      = 5 * time.Second
	handshakeTimeout = 5 * time.Second
	// A connection that is silent for probeAfter is probed, and closed when it
	// stays silent for probeTimeout.
	probeAfter   = 3 * time.Second
	probeTimeout = 2 * time.Second
	idleTimeout  = 90 * time.Second
	// maxIdle bounds the idle connections to a service that speaks HTTP/1.1.
	maxIdle = 32
)

// Service is where to ask, and how.
type Service struct {
	URL    string
	Client *http.Client
	base   *clientcerts.Pool
	// decoding is that of large answers.
	decoding sync.Mutex
}

// Dial connects to host:port by a way of its own; where it is nil, connections go
// straight there.
type Dial = func(ctx context.Context, network, addr string) (net.Conn, error)

// Load reads a kubeconfig. The service need not be there yet. Redirects are not
// followed: only the service that is configured is asked.
func Load(kubeconfig string, dial Dial) (*Service, error) { return named(kubeconfig, dial, nil) }

// LoadSpread is Load for a service of which each question that runs has a connection
// of its own: one for all would keep them at one replica of it, and all would wait
// when that dies.
func LoadSpread(kubeconfig string, dial Dial) (*Service, error) {
	return named(kubeconfig, dial, []string{"http/1.1"})
}

// LoadPlain is Load for a service that is told things and answers nothing: it may be
// reached without TLS, sees no name of this server, and errors are those of the file alone.
func LoadPlain(kubeconfig string, dial Dial) (*Service, error) {
	return load(kubeconfig, dial, "", nil, "https", "http")
}

// named is load, whose errors name the file.
func named(kubeconfig string, dial Dial, protocols []string) (*Service, error) {
	s, err := load(kubeconfig, dial, version.UserAgent("apiserver"), protocols, "https", "http")
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	return s, nil
}

// WarnPlain logs a warning if the service is reached without TLS: what is sent
// to it, and its answers, can be read and changed on the way.
func (s *Service) WarnPlain(log *slog.Logger, what string) {
	if strings.HasPrefix(s.URL, "http://") {
		log.Warn("requests to the service are not encrypted, use https", "service", what, "server", s.URL)
	}
}

func load(kubeconfig string, dial Dial, agent string, protocols []string, schemes ...string) (*Service, error) {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(config.Host)
	if err != nil || !slices.Contains(schemes, u.Scheme) || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("server %q must be an %s address without parameters", config.Host, schemes[0])
	}
	config.UserAgent, config.NextProtos, config.Dial, config.DisableCompression = agent, protocols, dial, true
	c, err := config.TransportConfig()
	if err != nil {
		return nil, err
	}
	s := &Service{URL: u.String()}
	if s.base, err = pool(c); err != nil {
		return nil, err
	}
	s.Client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	s.Client.Transport, err = transport.HTTPWrappersForConfig(c, s.base)
	return s, err
}

// pool are the connections of a configuration, with its certificates, and probed. A client
// certificate that is a file is followed.
func pool(c *transport.Config) (*clientcerts.Pool, error) {
	followed := c.TLS.CertFile != "" && len(c.TLS.CertData) == 0
	security, err := transport.TLSConfigFor(c)
	if err != nil {
		return nil, err
	}
	if security == nil {
		security = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if !followed {
		return clientcerts.Fixed(open(c, security)), nil
	}
	pair, err := tlsfiles.LoadPair(c.TLS.CertFile, c.TLS.KeyFile)
	if err != nil {
		return nil, err
	}
	return clientcerts.NewPool(clientcerts.Followed(pair), func(show clientcerts.Show) *http.Transport {
		security := security.Clone()
		security.GetClientCertificate = show
		return open(c, security)
	}), nil
}

func open(c *transport.Config, security *tls.Config) *http.Transport {
	base := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSClientConfig: security, TLSHandshakeTimeout: handshakeTimeout, MaxIdleConnsPerHost: maxIdle, IdleConnTimeout: idleTimeout,
		ForceAttemptHTTP2: len(c.TLS.NextProtos) == 0, DisableCompression: c.DisableCompression,
		HTTP2: &http.HTTP2Config{SendPingTimeout: probeAfter, PingTimeout: probeTimeout},
	}
	if c.Proxy != nil {
		base.Proxy = c.Proxy
	}
	if c.DialHolder != nil {
		base.DialContext = c.DialHolder.Dial
	}
	return base
}

// Measure has the requests measured. It is called before the first of them.
func (s *Service) Measure(m *Metrics) {
	host := ""
	if u, err := url.Parse(s.URL); err == nil {
		host = u.Host
	}
	m.hold(host) // as long as the server runs
	s.Client.Transport = m.around(s.Client.Transport, host)
}

// Close lets go of connections that nobody uses.
func (s *Service) Close() { s.base.CloseIdleConnections() }
