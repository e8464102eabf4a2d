package oidctoken

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	jose "github.com/go-jose/go-jose/v4"
	"golang.org/x/time/rate"

	"binnacle/libs/certchain"
	"binnacle/libs/limit"
	"binnacle/libs/serving/tlsfiles"
)

const (
	// The delay after a failed discovery starts at minRetryDelay and doubles up to maxRetryDelay.
	minRetryDelay = 100 * time.Millisecond
	maxRetryDelay = 10 * time.Second
	// refreshInterval is the longest time after which a withdrawn key becomes invalid.
	refreshInterval = 10 * time.Minute
	// Tokens with unknown keys cause at most unknownKeyBurst requests to the provider in a row, and
	// then one in unknownKeyPause.
	unknownKeyPause = 10 * time.Second
	unknownKeyBurst = 5
	callTimeout     = 10 * time.Second
)

// ErrNotInitialized reports that no discovery of a provider has succeeded yet.
var ErrNotInitialized = errors.New("not initialized")

// errNotTried is the failure of a provider before the first discovery.
var errNotTried = errors.New("discovery has not been tried yet")

// SigningAlgorithms returns the supported algorithms. All are asymmetric, because a public key must
// never be used as a shared secret.
func SigningAlgorithms() []string {
	return []string{
		oidc.RS256, oidc.RS384, oidc.RS512,
		oidc.ES256, oidc.ES384, oidc.ES512,
		oidc.PS256, oidc.PS384, oidc.PS512,
	}
}

// ProviderConfig configures a Provider.
type ProviderConfig struct {
	// IssuerURL is an https URL, and the claim "iss" of the tokens.
	IssuerURL string
	// DiscoveryURL is the URL of the provider's metadata, used exactly as given. If empty, it is
	// derived from IssuerURL.
	DiscoveryURL string
	// CA is a PEM bundle that verifies the provider's server certificate; the host's roots if
	// empty.
	CA string
	// Algorithms are the accepted signing algorithms; RS256 if empty.
	Algorithms []string
	// Withdrawn is called when keys were withdrawn, so that callers can drop cached results; may be
	// nil. Equal ignores it.
	Withdrawn func()
}

// Equal reports whether two configurations describe the same provider.
func (c ProviderConfig) Equal(d ProviderConfig) bool {
	return c.IssuerURL == d.IssuerURL && c.DiscoveryURL == d.DiscoveryURL && c.CA == d.CA &&
		slices.Equal(c.Algorithms, d.Algorithms)
}

// Provider is an issuer of tokens.
type Provider struct {
	config     ProviderConfig
	log        *slog.Logger
	client     *http.Client
	verifier   *oidc.IDTokenVerifier
	algorithms []jose.SignatureAlgorithm

	keys             atomic.Pointer[[]jose.JSONWebKey] // nil until a token needed them
	initialized      chan struct{}                     // closed by Run after the first successful discovery
	stopped          chan struct{}                     // closed when Run has ended
	refreshLimiter   *rate.Limiter
	refreshRequested chan struct{} // wakes Run for a refresh

	sources sourceIssuers        // of claim tokens
	fetches *limit.Queue[string] // of claim tokens in progress

	mu          sync.Mutex    // leaf lock
	keysRead    chan struct{} // closed when the keys were read; nil if no caller waits
	lastFailure error         // of the last request
}

// NewProvider returns a provider that is not initialized.
func NewProvider(providerConfig ProviderConfig, log *slog.Logger) (*Provider, error) {
	if err := checkIssuerURL(providerConfig.IssuerURL); err != nil {
		return nil, fmt.Errorf("issuer URL: %w", err)
	}
	if providerConfig.DiscoveryURL != "" {
		if err := checkIssuerURL(providerConfig.DiscoveryURL); err != nil {
			return nil, fmt.Errorf("discovery URL: %w", err)
		}
	}
	if len(providerConfig.Algorithms) == 0 {
		providerConfig.Algorithms = []string{oidc.RS256}
	}
	provider := &Provider{
		config:           providerConfig,
		log:              log.With("issuer", providerConfig.IssuerURL),
		initialized:      make(chan struct{}),
		stopped:          make(chan struct{}),
		refreshLimiter:   rate.NewLimiter(rate.Every(unknownKeyPause), unknownKeyBurst),
		refreshRequested: make(chan struct{}, 1),
		lastFailure:      errNotTried,
		fetches:          limit.New[string](limit.Options{Size: maxFetches, FairShare: true}),
	}
	for _, a := range providerConfig.Algorithms {
		if !slices.Contains(SigningAlgorithms(), a) {
			return nil, fmt.Errorf("unsupported signing algorithm %q", a)
		}
		provider.algorithms = append(provider.algorithms, jose.SignatureAlgorithm(a))
	}
	var err error
	if provider.client, err = newHTTPClient(providerConfig.CA); err != nil {
		return nil, err
	}
	provider.verifier = oidc.NewVerifier(providerConfig.IssuerURL, provider, &oidc.Config{
		// The Authenticator checks audiences, because any of several may match.
		SkipClientIDCheck:    true,
		SupportedSigningAlgs: providerConfig.Algorithms,
	})
	return provider, nil
}

// checkIssuerURL returns an error unless the URL is an issuer URL with https.
func checkIssuerURL(raw string) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return err
	case u.Scheme != "https":
		return fmt.Errorf("%q has scheme %q, want https", raw, u.Scheme)
	case u.Host == "":
		return fmt.Errorf("%q names no host", raw)
	}
	return nil
}

// newHTTPClient returns an HTTP client that trusts a CA, or the CAs of the system.
func newHTTPClient(bundle string) (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if bundle != "" {
		certs, err := tlsfiles.ParseCertificates([]byte(bundle))
		if err != nil {
			return nil, fmt.Errorf("certificate authority of the provider: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		for _, c := range certs {
			config.RootCAs.AddCert(c)
		}
	}
	transport := &http.Transport{ // of HTTP/1.1: the provider controls few frames
		Proxy:                  http.ProxyFromEnvironment,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    callTimeout,
		IdleConnTimeout:        callTimeout,
		MaxIdleConns:           2,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
	transport.DialTLSContext = certchain.DialTLS((&net.Dialer{}).DialContext, config, callTimeout)
	return &http.Client{
		Timeout:   callTimeout,
		Transport: transport,
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) >= maxRedirects {
				return errors.New("too many redirects")
			}
			return checkIssuerURL(r.URL.String())
		},
	}, nil
}

// Config returns the provider's configuration.
func (p *Provider) Config() ProviderConfig { return p.config }

// Initialized returns a channel that is closed after the first successful discovery.
func (p *Provider) Initialized() <-chan struct{} { return p.initialized }

// isInitialized reports whether a discovery has succeeded.
func (p *Provider) isInitialized() bool {
	select {
	case <-p.initialized:
		return true
	default:
		return false
	}
}

// Check returns nil if the provider is initialized, and otherwise the reason why not.
func (p *Provider) Check() error {
	if p.isInitialized() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Errorf("OIDC issuer %q is %w: %w", p.config.IssuerURL, ErrNotInitialized, p.lastFailure)
}

// Run discovers the provider and updates its keys, from the first token on, until ctx ends. It is
// called once.
func (p *Provider) Run(ctx context.Context) error {
	defer p.client.CloseIdleConnections()
	defer close(p.stopped)
	ctx, cancel := context.WithCancel(ctx)
	defer p.sources.startRunning(ctx)()
	defer cancel()
	pause := minRetryDelay
	needed := false // a token has needed the keys
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		case <-p.refreshRequested:
		}
		waiting := p.takeWaiters()
		needed = needed || waiting != nil
		err := p.readMetadataAndKeys(ctx, needed)
		if waiting != nil {
			close(waiting)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p.recordResult(err)
		switch {
		case err != nil:
			timer.Reset(pause)
			pause = min(2*pause, maxRetryDelay)
		case needed:
			pause = minRetryDelay
			timer.Reset(refreshInterval)
		default: // the first token wakes Run
			pause = minRetryDelay
			timer.Stop()
		}
	}
}

// readMetadataAndKeys reads the metadata, and the keys if tokens need them. An issuer may publish
// its metadata before its keys, so keys are not read earlier.
func (p *Provider) readMetadataAndKeys(ctx context.Context, needed bool) error {
	keysURL, err := p.discover(ctx)
	if err != nil {
		return err
	}
	if !p.isInitialized() {
		close(p.initialized)
	}
	if !needed {
		return nil
	}
	keys, err := p.readKeys(ctx, keysURL)
	if err != nil {
		return err
	}
	previous := p.keys.Swap(&keys)
	if previous != nil && p.config.Withdrawn != nil && !containsAll(keys, *previous) {
		p.config.Withdrawn()
	}
	return nil
}

// recordResult records the result of a request, and logs it if it differs from the previous one.
func (p *Provider) recordResult(err error) {
	p.mu.Lock()
	previous := p.lastFailure
	p.lastFailure = err
	p.mu.Unlock()
	switch {
	case err == nil && previous != nil:
		p.log.Info("OIDC issuer is reachable")
	case err != nil && (previous == nil || previous.Error() != err.Error()):
		p.log.Warn("failed to read metadata or signing keys of the OIDC issuer; retrying", "error", err)
	}
}

// requestRefresh makes Run read the keys, unless the rate limit is reached. The returned channel is
// closed when they were read.
func (p *Provider) requestRefresh() (done <-chan struct{}, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keysRead != nil {
		return p.keysRead, true
	}
	if !p.refreshLimiter.Allow() {
		return nil, false
	}
	p.keysRead = make(chan struct{})
	select {
	case p.refreshRequested <- struct{}{}:
	default: // a wake-up is pending already
	}
	return p.keysRead, true
}

// ensureInitialized reports whether the provider is initialized. If the last discovery failed, it
// repeats the discovery at once, within the rate limit of requestRefresh.
func (p *Provider) ensureInitialized(ctx context.Context) bool {
	if p.isInitialized() {
		return true
	}
	p.mu.Lock()
	tried := p.lastFailure != errNotTried
	p.mu.Unlock()
	if !tried {
		return false
	}
	if done, ok := p.requestRefresh(); ok {
		select {
		case <-done:
		case <-p.stopped:
		case <-ctx.Done():
		}
	}
	return p.isInitialized()
}

// takeWaiters returns the channel that the caller must close when the keys were read, or nil if no
// token waits for them. Tokens that arrive later wait for the next refresh.
func (p *Provider) takeWaiters() chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	waiting := p.keysRead
	p.keysRead = nil
	return waiting
}
