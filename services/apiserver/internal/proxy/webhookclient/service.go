// Package webhookclient creates clients of the services that the API server calls. Load and its
// variants read a kubeconfig (specification: "Authorization", webhook configuration file). Webhooks
// calls webhooks that API objects name, and resolves those that are services of the cluster with
// Services.
//
// Responses are read and decoded within limits: a ResponseLimiter bounds the concurrent large
// responses of webhooks, and Service.Decode bounds reviews.
//
// A service may hang without closing its connections. HTTP/2 connections are probed, so that calls
// in progress fail after a few seconds and later calls use a new connection.
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

	"binnacle/libs/certchain"
	"binnacle/libs/serving/tlsfiles"
	"binnacle/libs/version"
	"binnacle/services/apiserver/internal/proxy/clientcerts"
	"binnacle/services/apiserver/internal/proxy/responselimit"
)

const (
	dialTimeout      = 5 * time.Second
	handshakeTimeout = 5 * time.Second
	// A connection that is silent for probeAfter is probed. It is closed if it stays silent for
	// probeTimeout.
	probeAfter   = 3 * time.Second
	probeTimeout = 2 * time.Second
	idleTimeout  = 90 * time.Second
	// maxIdle bounds the idle connections to a service that uses HTTP/1.1.
	maxIdle = 32
)

// Service is a client of the service that a kubeconfig names.
type Service struct {
	URL    string
	Client *http.Client
	base   *clientcerts.Pool
	// decoding serializes the decoding of large responses.
	decoding sync.Mutex
}

// Dial connects to host:port, for example through a proxy. A nil Dial connects directly.
type Dial = func(ctx context.Context, network, addr string) (net.Conn, error)

// Load reads a kubeconfig. The service may be unavailable. The client does not follow redirects.
func Load(kubeconfig string, dial Dial) (*Service, error) { return loadNamed(kubeconfig, dial, nil) }

// LoadHTTP1 is Load with HTTP/1.1, so that each call in progress has its own connection. A shared
// HTTP/2 connection would send all calls to one replica of the service, and all would hang when it
// fails.
func LoadHTTP1(kubeconfig string, dial Dial) (*Service, error) {
	return loadNamed(kubeconfig, dial, []string{"http/1.1"})
}

// LoadPlain is Load for a service that only receives data, such as audit events. The client sends
// no User-Agent, and errors do not name the file.
func LoadPlain(kubeconfig string, dial Dial) (*Service, error) {
	return load(kubeconfig, dial, "", nil, "https", "http")
}

// loadNamed loads like load, sends a User-Agent, and returns errors that name the file.
func loadNamed(kubeconfig string, dial Dial, protocols []string) (*Service, error) {
	s, err := load(kubeconfig, dial, version.UserAgent("apiserver"), protocols, "https", "http")
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	return s, nil
}

// WarnPlain logs a warning if the service is called without TLS, because requests and responses
// could be read and changed in transit.
func (s *Service) WarnPlain(log *slog.Logger, subject string) {
	if strings.HasPrefix(s.URL, "http://") {
		log.Warn("requests to the service are not encrypted, use https", "service", subject, "server", s.URL)
	}
}

// load returns the service of a kubeconfig whose URL has one of the schemes. Without protocols, the
// client may use HTTP/2.
func load(kubeconfig string, dial Dial, agent string, protocols []string, schemes ...string) (*Service, error) {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, err
	}
	serverURL, err := url.Parse(config.Host)
	if err != nil || !slices.Contains(schemes, serverURL.Scheme) || serverURL.Host == "" || serverURL.RawQuery != "" || serverURL.Fragment != "" {
		return nil, fmt.Errorf("server %q must be an %s address without parameters", config.Host, schemes[0])
	}
	config.UserAgent = agent
	config.NextProtos = protocols
	config.Dial = dial
	config.DisableCompression = true
	c, err := config.TransportConfig()
	if err != nil {
		return nil, err
	}
	s := &Service{URL: serverURL.String()}
	if s.base, err = newPool(c); err != nil {
		return nil, err
	}
	s.Client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	s.Client.Transport, err = transport.HTTPWrappersForConfig(c, s.base)
	return s, err
}

// newPool returns a connection pool for a configuration. It reloads a client certificate whose file
// changes.
func newPool(config *transport.Config) (*clientcerts.Pool, error) {
	reloaded := config.TLS.CertFile != "" && len(config.TLS.CertData) == 0
	security, err := transport.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	if security == nil {
		security = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if !reloaded {
		return clientcerts.Fixed(openTransport(config, security)), nil
	}
	pair, err := tlsfiles.LoadPair(config.TLS.CertFile, config.TLS.KeyFile)
	if err != nil {
		return nil, err
	}
	return clientcerts.NewPool(clientcerts.ReloadingCertificate(pair), func(show clientcerts.CertificateFunc) *http.Transport {
		security := security.Clone()
		security.GetClientCertificate = show
		return openTransport(config, security)
	}), nil
}

// openTransport returns a transport with the settings of a kubeconfig.
func openTransport(config *transport.Config, security *tls.Config) *http.Transport {
	base := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSClientConfig:     security,
		TLSHandshakeTimeout: handshakeTimeout,
		MaxIdleConnsPerHost: maxIdle,
		IdleConnTimeout:     idleTimeout,
		ForceAttemptHTTP2:   len(config.TLS.NextProtos) == 0,
		DisableCompression:  config.DisableCompression,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: probeAfter, PingTimeout: probeTimeout},
	}
	if config.Proxy != nil {
		base.Proxy = config.Proxy
	}
	if config.DialHolder != nil {
		base.DialContext = config.DialHolder.Dial
	}
	responselimit.LimitTransport(base)
	base.DialTLSContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		return certchain.DialTLS(base.DialContext, base.TLSClientConfig, handshakeTimeout)(ctx, network, addr)
	}
	return base
}

// Measure instruments the client. It must be called before the first request.
func (s *Service) Measure(m *Metrics) {
	host := ""
	if u, err := url.Parse(s.URL); err == nil {
		host = u.Host
	}
	m.retain(host) // for the lifetime of the server
	s.Client.Transport = m.instrument(s.Client.Transport, host)
}

// Close closes idle connections.
func (s *Service) Close() { s.base.CloseIdleConnections() }
