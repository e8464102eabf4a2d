package oidctoken

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"binnacle/libs/authenticator"
	"binnacle/libs/limit"
)

// Claims that name the sources of distributed claims (OpenID Connect Core 1.0, section 5.6.2).
const (
	claimNames   = "_claim_names"
	claimSources = "_claim_sources"
)

// maxFetches is the number of claim tokens that one provider fetches at a time. Each may take
// maxResponseBytes of memory, and the source may be slow. Hosts of sources share the number fairly:
// one gets at most half of it.
const maxFetches = 16

// Limits of the other issuers of claim tokens that one provider tracks. A new host or issuer replaces
// the least recently used one. The provider vouches for the hosts, because its tokens name them. A
// host chooses the issuers of its claim tokens, so it has a limit of its own.
const (
	// maxSourceHosts is the number of hosts of claim sources.
	maxSourceHosts = 16
	// maxHostIssuers is the number of issuers of one host.
	maxHostIssuers = 4
)

// claimSource is the source of a distributed claim.
type claimSource struct {
	Endpoint    string `json:"endpoint"`
	AccessToken string `json:"access_token"`
}

// host returns the host of the endpoint, or an empty string if the endpoint is not an https URL.
func (s claimSource) host() string {
	endpoint, err := url.Parse(s.Endpoint)
	if err != nil || endpoint.Scheme != "https" {
		return ""
	}
	return strings.ToLower(endpoint.Host)
}

// addDistributedClaim adds the distributed claim name to claims, unless the token contains the
// claim or names no source for it. It returns the expiry of the claim, or the zero time if it was
// not added.
func (a *Authenticator) addDistributedClaim(ctx context.Context, claims Claims, payload []byte, name string) (time.Time, error) {
	if _, ok := claims[name]; ok || name == "" {
		return time.Time{}, nil
	}
	source, err := findClaimSource(payload, name)
	if err != nil || source.Endpoint == "" {
		return time.Time{}, err
	}
	token, err := a.provider.fetchClaim(ctx, source)
	if err != nil {
		return time.Time{}, fmt.Errorf("distributed claim %q: %w", name, err)
	}
	issuer, err := a.provider.sources.issuerFor(a.provider, source.host(), Issuer(token))
	if err != nil {
		return time.Time{}, fmt.Errorf("distributed claim %q: %w", name, err)
	}
	v, err := a.verifyToken(ctx, issuer, token)
	if err != nil {
		return time.Time{}, fmt.Errorf("distributed claim %q: %w", name, err)
	}
	value, ok := v.claims[name]
	if !ok {
		return time.Time{}, fmt.Errorf("distributed claim %q: the token of the claim source lacks the claim", name)
	}
	claims[name] = value
	return v.expires, nil
}

// findClaimSource returns the source that a token's payload names for a claim, or the zero source.
func findClaimSource(payload []byte, name string) (source claimSource, err error) {
	var claims map[string]json.RawMessage
	if err := json.Unmarshal(payload, &claims); err != nil || claims[claimNames] == nil {
		return source, err
	}
	var byClaim map[string]string
	if err := json.Unmarshal(claims[claimNames], &byClaim); err != nil {
		return source, fmt.Errorf("parse %s: %w", claimNames, err)
	}
	if claims[claimSources] == nil {
		return source, fmt.Errorf("token has %s without %s", claimNames, claimSources)
	}
	var sources map[string]claimSource
	if err := json.Unmarshal(claims[claimSources], &sources); err != nil {
		return source, fmt.Errorf("parse %s: %w", claimSources, err)
	}
	id, ok := byClaim[name]
	if !ok {
		return source, nil
	}
	source, ok = sources[id]
	if !ok {
		return source, fmt.Errorf("%s names source %q, which %s lacks", claimNames, id, claimSources)
	}
	return source, nil
}

// fetchClaim reads a token from a claim source. Its errors contain only the host of the source,
// because the URL may contain secrets. A failed fetch says nothing about the ID token, so it is an
// authenticator.Unavailable error.
func (p *Provider) fetchClaim(ctx context.Context, source claimSource) (string, error) {
	host := source.host()
	if host == "" {
		return "", errors.New("the endpoint of the claim source is not an https URL")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, source.Endpoint, nil)
	if err != nil {
		return "", errors.New("the endpoint of the claim source is not a valid URL")
	}
	if source.AccessToken != "" {
		req.Header.Set("Authorization", "Bearer "+source.AccessToken)
	}
	fetch := limit.Claim[string]{Key: host}
	if err := p.fetches.Acquire(ctx, fetch); err != nil {
		return "", authenticator.Unavailable(fmt.Errorf("request to claim source %s: %w", host, err))
	}
	defer p.fetches.Release(fetch)
	resp, err := p.client.Do(req)
	if err != nil {
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return "", authenticator.Unavailable(fmt.Errorf("request to claim source %s: %w", host, err))
	}
	defer resp.Body.Close()
	if resp.StatusCode < http.StatusOK || resp.StatusCode > http.StatusIMUsed {
		return "", authenticator.Unavailable(fmt.Errorf("claim source %s returned status %d", host, resp.StatusCode))
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponseBytes+1))
	switch {
	case err != nil:
		return "", authenticator.Unavailable(fmt.Errorf("read from claim source %s: %w", host, err))
	case len(body) > maxResponseBytes:
		return "", fmt.Errorf("claim source %s returned more than %d bytes", host, maxResponseBytes)
	}
	return strings.TrimSpace(string(body)), nil
}

// sourceIssuers are the issuers of claim tokens other than the provider. They run as long as the
// provider, or until newer ones exceed maxHostIssuers or maxSourceHosts.
type sourceIssuers struct {
	mu    sync.Mutex
	hosts *simplelru.LRU[string, *hostIssuers]      // by host of the claim source
	run   func(*Provider) (stop context.CancelFunc) // nil while the provider does not run
}

// hostIssuers are the issuers of the claim tokens of one host, by issuer URL.
type hostIssuers = simplelru.LRU[string, *sourceIssuer]

// sourceIssuer is the issuer of distributed claims. stop ends its discovery.
type sourceIssuer struct {
	*Provider
	stop context.CancelFunc
}

// startRunning runs issuers until ctx ends. Then the caller must call stop, which waits for them.
func (s *sourceIssuers) startRunning(ctx context.Context) (stop func()) {
	var running sync.WaitGroup
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run = func(p *Provider) context.CancelFunc {
		ctx, cancel := context.WithCancel(ctx)
		running.Go(func() { _ = p.Run(ctx) })
		return cancel
	}
	return func() {
		s.mu.Lock()
		s.run = nil
		s.mu.Unlock()
		running.Wait()
	}
}

// issuerFor returns the provider for the issuer of a claim token from a host. A new issuer is
// started, and its tokens are rejected until it is initialized.
func (s *sourceIssuers) issuerFor(p *Provider, host, url string) (*Provider, error) {
	if url == p.config.IssuerURL {
		return p, nil
	}
	found, err := s.findOrStart(p, host, url)
	if err != nil {
		return nil, err
	}
	if !found.isInitialized() {
		return nil, authenticator.Unavailable(fmt.Errorf("issuer %q is %w", url, ErrNotInitialized))
	}
	return found, nil
}

// findOrStart returns the provider of a source issuer. It starts the provider on first use.
func (s *sourceIssuers) findOrStart(p *Provider, host, url string) (*Provider, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	issuers, err := s.issuersOf(host)
	if err != nil {
		return nil, err
	}
	if found, ok := issuers.Get(url); ok {
		return found.Provider, nil
	}
	if s.run == nil {
		return nil, authenticator.Unavailable(fmt.Errorf("issuer %q is %w", url, ErrNotInitialized))
	}
	provider, err := NewProvider(ProviderConfig{
		IssuerURL:  url,
		CA:         p.config.CA,
		Algorithms: p.config.Algorithms,
		Withdrawn:  p.config.Withdrawn,
	}, p.log)
	if err != nil {
		return nil, err
	}
	issuers.Add(url, &sourceIssuer{provider, s.run(provider)})
	return provider, nil
}

// issuersOf returns the issuers of a host. The caller holds mu.
func (s *sourceIssuers) issuersOf(host string) (*hostIssuers, error) {
	if s.hosts == nil {
		hosts, err := simplelru.NewLRU(maxSourceHosts, func(_ string, old *hostIssuers) { old.Purge() })
		if err != nil {
			return nil, err
		}
		s.hosts = hosts
	}
	if issuers, ok := s.hosts.Get(host); ok {
		return issuers, nil
	}
	issuers, err := simplelru.NewLRU(maxHostIssuers, func(_ string, old *sourceIssuer) { old.stop() })
	if err != nil {
		return nil, err
	}
	s.hosts.Add(host, issuers)
	return issuers, nil
}
