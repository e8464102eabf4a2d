package oidctoken

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	jose "github.com/go-jose/go-jose/v4"
	"golang.org/x/time/rate"

	"binnacle/libs/serving/tlsfiles"
)

const (
	// The pause after a failed discovery starts at retryFirst and doubles up to
	// retryLast.
	retryFirst = 100 * time.Millisecond
	retryLast  = 10 * time.Second
	// refreshInterval is how soon a key that the provider has withdrawn stops
	// counting.
	refreshInterval = 10 * time.Minute
	// Tokens with unknown keys cause a call to the provider at most
	// unknownKeyBurst times in a row, and then once in unknownKeyPause.
	unknownKeyPause = 10 * time.Second
	unknownKeyBurst = 5
	callTimeout     = 10 * time.Second
)

// ErrNotInitialized reports that no discovery of a provider has succeeded yet.
var ErrNotInitialized = errors.New("not initialized")

var errNotTried = errors.New("discovery has not been tried yet")

// SigningAlgorithms are those that may be configured. All are asymmetric: a
// public key must never count as a shared secret.
func SigningAlgorithms() []string {
	return []string{
		oidc.RS256, oidc.RS384, oidc.RS512,
		oidc.ES256, oidc.ES384, oidc.ES512,
		oidc.PS256, oidc.PS384, oidc.PS512,
	}
}

// ProviderConfig says which provider.
type ProviderConfig struct {
	// IssuerURL is an https URL, and the claim "iss" of the tokens.
	IssuerURL string
	// DiscoveryURL is where the provider's metadata is read, exactly as given;
	// below IssuerURL when empty.
	DiscoveryURL string
	// CA is a PEM bundle that the provider's web certificate is verified with;
	// the host's roots when empty.
	CA string
	// Algorithms are the signing algorithms that are accepted; RS256 when
	// empty.
	Algorithms []string
	// Withdrawn is called when keys have been found withdrawn, so that what their
	// tokens were found to be worth is kept no longer; may be nil. It is no part of
	// which provider is meant.
	Withdrawn func()
}

// Equal tells whether two configurations mean the same provider.
func (c ProviderConfig) Equal(d ProviderConfig) bool {
	return c.IssuerURL == d.IssuerURL && c.DiscoveryURL == d.DiscoveryURL && c.CA == d.CA && slices.Equal(c.Algorithms, d.Algorithms)
}

// Provider is one issuer of tokens.
type Provider struct {
	config     ProviderConfig
	log        *slog.Logger
	client     *http.Client
	verifier   *oidc.IDTokenVerifier
	algorithms []jose.SignatureAlgorithm

	keys        atomic.Pointer[[]jose.JSONWebKey] // nil until a token needed them
	initialized chan struct{}                     // closed by Run when discovery has succeeded
	stopped     chan struct{}                     // closed when Run has ended
	unknown     *rate.Limiter
	asked       chan struct{} // wakes Run for refresh

	sources sourceIssuers // of claim tokens

	mu      sync.Mutex // leaf
	refresh chan struct{}
	failure error // of the last call
}

// NewProvider returns a provider that is not initialized.
func NewProvider(c ProviderConfig, log *slog.Logger) (*Provider, error) {
	if err := checkURL(c.IssuerURL); err != nil {
		return nil, fmt.Errorf("issuer URL: %w", err)
	}
	if c.DiscoveryURL != "" {
		if err := checkURL(c.DiscoveryURL); err != nil {
			return nil, fmt.Errorf("discovery URL: %w", err)
		}
	}
	if len(c.Algorithms) == 0 {
		c.Algorithms = []string{oidc.RS256}
	}
	p := &Provider{
		config:      c,
		log:         log.With("issuer", c.IssuerURL),
		initialized: make(chan struct{}),
		stopped:     make(chan struct{}),
		unknown:     rate.NewLimiter(rate.Every(unknownKeyPause), unknownKeyBurst),
		asked:       make(chan struct{}, 1),
		failure:     errNotTried,
	}
	for _, a := range c.Algorithms {
		if !slices.Contains(SigningAlgorithms(), a) {
			return nil, fmt.Errorf("unsupported signing algorithm %q", a)
		}
		p.algorithms = append(p.algorithms, jose.SignatureAlgorithm(a))
	}
	var err error
	if p.client, err = client(c.CA); err != nil {
		return nil, err
	}
	p.verifier = oidc.NewVerifier(c.IssuerURL, p, &oidc.Config{
		// Audiences are the Authenticator's affair, since any of several may
		// match.
		SkipClientIDCheck:    true,
		SupportedSigningAlgs: c.Algorithms,
	})
	return p, nil
}

func checkURL(raw string) error {
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

func client(ca string) (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		certs, err := tlsfiles.ParseCertificates([]byte(ca))
		if err != nil {
			return nil, fmt.Errorf("certificate authority of the provider: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		for _, c := range certs {
			config.RootCAs.AddCert(c)
		}
	}
	return &http.Client{
		Timeout: callTimeout,
		Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			TLSClientConfig:     config,
			TLSHandshakeTimeout: callTimeout,
			IdleConnTimeout:     callTimeout,
			MaxIdleConns:        2,
			ForceAttemptHTTP2:   true,
		},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) >= maxRedirects {
				return errors.New("too many redirects")
			}
			return checkURL(r.URL.String())
		},
	}, nil
}

// Config returns what the provider was made of.
func (p *Provider) Config() ProviderConfig { return p.config }

// Initialized is closed once discovery has succeeded.
func (p *Provider) Initialized() <-chan struct{} { return p.initialized }

func (p *Provider) isInitialized() bool {
	select {
	case <-p.initialized:
		return true
	default:
		return false
	}
}

// Check returns nil once the provider is initialized, and before that why it
// is not.
func (p *Provider) Check() error {
	if p.isInitialized() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Errorf("OIDC issuer %q is %w: %w", p.config.IssuerURL, ErrNotInitialized, p.failure)
}

// Run discovers the provider, and keeps the keys up to date from the first token on,
// until ctx ends. It is called once.
func (p *Provider) Run(ctx context.Context) error {
	defer p.client.CloseIdleConnections()
	defer close(p.stopped)
	ctx, cancel := context.WithCancel(ctx)
	defer p.sources.start(ctx)()
	defer cancel()
	pause, needed := retryFirst, false
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		case <-p.asked:
		}
		waiting := p.takeRefresh()
		needed = needed || waiting != nil
		err := p.update(ctx, needed)
		if waiting != nil {
			close(waiting)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p.note(err)
		switch {
		case err != nil:
			timer.Reset(pause)
			pause = min(2*pause, retryLast)
		case needed:
			pause = retryFirst
			timer.Reset(refreshInterval)
		default: // the first token wakes it
			pause = retryFirst
			timer.Stop()
		}
	}
}

// update reads the metadata, and the keys if tokens need them. An issuer may publish its
// metadata before its keys, so they are not read earlier.
func (p *Provider) update(ctx context.Context, needed bool) error {
	at, err := p.discover(ctx)
	if err != nil {
		return err
	}
	if !p.isInitialized() {
		close(p.initialized)
	}
	if !needed {
		return nil
	}
	keys, err := p.readKeys(ctx, at)
	if err != nil {
		return err
	}
	before := p.keys.Swap(&keys)
	if before != nil && p.config.Withdrawn != nil && !containsAll(keys, *before) {
		p.config.Withdrawn()
	}
	return nil
}

// note records and, if it is news, logs the outcome of a call.
func (p *Provider) note(err error) {
	p.mu.Lock()
	before := p.failure
	p.failure = err
	p.mu.Unlock()
	switch {
	case err == nil && before != nil:
		p.log.Info("OIDC issuer is reachable")
	case err != nil && (before == nil || before.Error() != err.Error()):
		p.log.Warn("cannot read metadata or signing keys of the OIDC issuer, retrying", "error", err)
	}
}

// askRefresh makes Run read the keys, unless that happened too often lately;
// what it returns is closed when they have been read.
func (p *Provider) askRefresh() (done <-chan struct{}, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refresh != nil {
		return p.refresh, true
	}
	if !p.unknown.Allow() {
		return nil, false
	}
	p.refresh = make(chan struct{})
	select {
	case p.asked <- struct{}{}:
	default: // a wake-up waits already
	}
	return p.refresh, true
}

// ready reports whether the provider is initialized. If the last discovery failed, it repeats the
// discovery instead of waiting for the next one, as often as askRefresh admits.
func (p *Provider) ready(ctx context.Context) bool {
	if p.isInitialized() {
		return true
	}
	p.mu.Lock()
	tried := p.failure != errNotTried
	p.mu.Unlock()
	if !tried {
		return false
	}
	if done, ok := p.askRefresh(); ok {
		select {
		case <-done:
		case <-p.stopped:
		case <-ctx.Done():
		}
	}
	return p.isInitialized()
}

// takeRefresh returns what those wait for who asked before the call to the
// provider; who asks during it waits for the next.
func (p *Provider) takeRefresh() chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	waiting := p.refresh
	p.refresh = nil
	return waiting
}
