package oidctoken

import (
	"context"
	"crypto"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"net/http"
	"slices"
	"strings"

	jose "github.com/go-jose/go-jose/v4"
)

const (
	wellKnown = "/.well-known/openid-configuration"
	// maxResponseBytes and maxKeys limit the memory that a provider can use.
	maxResponseBytes = 1 << 20
	maxKeys          = 256
	maxRedirects     = 5
	// maxHeaderBytes bounds the head of a response, whose fields take many times their text.
	maxHeaderBytes = 64 << 10
	// maxKeyCost bounds the cost of a signature check with an RSA key: the square of the size in
	// bits times the length of the exponent. It is that of a key of 8192 bits with the usual
	// exponent.
	maxKeyCost = 8192 * 8192 * 17
	// maxCandidates bounds the keys that are tried for a token. A set of several keys needs key ids
	// (OpenID Connect Core 1.0, section 10.1).
	maxCandidates = 8
)

var errNoKey = errors.New("no key of the issuer verifies the signature")

// discover reads the provider's metadata and returns the URL of the keys.
func (p *Provider) discover(ctx context.Context) (string, error) {
	discoveryURL := p.config.DiscoveryURL
	if discoveryURL == "" {
		discoveryURL = strings.TrimSuffix(p.config.IssuerURL, "/") + wellKnown
	}
	var metadata struct {
		Issuer  string `json:"issuer"`
		JWKSURI string `json:"jwks_uri"`
	}
	if err := p.getJSON(ctx, discoveryURL, &metadata); err != nil {
		return "", err
	}
	if metadata.Issuer != p.config.IssuerURL {
		return "", fmt.Errorf("%s is of issuer %q, want %q", discoveryURL, metadata.Issuer, p.config.IssuerURL)
	}
	if err := checkIssuerURL(metadata.JWKSURI); err != nil {
		return "", fmt.Errorf("jwks_uri of %s: %w", discoveryURL, err)
	}
	return metadata.JWKSURI, nil
}

// readKeys reads the keys published at a URL.
func (p *Provider) readKeys(ctx context.Context, keysURL string) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := p.getJSON(ctx, keysURL, &set); err != nil {
		return nil, err
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("%s has %d keys, want at most %d", keysURL, len(set.Keys), maxKeys)
	}
	keys := signingKeys(set.Keys)
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s has no signing key", keysURL)
	}
	return keys, nil
}

// signingKeys returns the keys that can verify a signature. It ignores other keys and unknown
// types.
func signingKeys(raw []json.RawMessage) []jose.JSONWebKey {
	var keys []jose.JSONWebKey
	for _, r := range raw {
		var jsonWebKey jose.JSONWebKey
		if err := json.Unmarshal(r, &jsonWebKey); err != nil || !jsonWebKey.Valid() || !jsonWebKey.IsPublic() ||
			(jsonWebKey.Use != "" && jsonWebKey.Use != "sig") || !isCheap(jsonWebKey.Key) {
			continue
		}
		keys = append(keys, jsonWebKey)
	}
	return keys
}

// isCheap reports whether the cost of a signature check is bounded. The provider chooses its keys.
func isCheap(key any) bool {
	publicKey, ok := key.(*rsa.PublicKey)
	if !ok {
		return true
	}
	size := publicKey.N.BitLen()
	return size*size*bits.Len(uint(publicKey.E)) <= maxKeyCost
}

// containsAll reports whether keys contains all of others.
func containsAll(keys, wanted []jose.JSONWebKey) bool {
	return !slices.ContainsFunc(wanted, func(o jose.JSONWebKey) bool {
		return !slices.ContainsFunc(keys, func(k jose.JSONWebKey) bool {
			public, ok := k.Key.(interface{ Equal(crypto.PublicKey) bool })
			return ok && k.KeyID == o.KeyID && public.Equal(o.Key)
		})
	})
}

// getJSON requests a JSON document of the provider.
func (p *Provider) getJSON(ctx context.Context, url string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponseBytes+1))
	switch {
	case err != nil:
		return fmt.Errorf("read %s: %w", url, err)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s returned status %d", url, resp.StatusCode)
	case len(body) > maxResponseBytes:
		return fmt.Errorf("%s returned more than %d bytes", url, maxResponseBytes)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	return nil
}

// VerifySignature implements oidc.KeySet. It returns the token's payload.
func (p *Provider) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	jws, err := jose.ParseSigned(token, p.algorithms)
	if err != nil {
		return nil, err
	}
	payload, err := p.verifyWithKeys(jws)
	if err == nil {
		return payload, nil
	}
	// The keys may have rotated.
	done, ok := p.requestRefresh()
	if !ok {
		return nil, err
	}
	select {
	case <-done:
		return p.verifyWithKeys(jws)
	case <-p.stopped:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// verifyWithKeys returns the payload of a token that one of the provider's keys signed.
func (p *Provider) verifyWithKeys(jws *jose.JSONWebSignature) ([]byte, error) {
	keys := p.keys.Load()
	if keys == nil {
		return nil, ErrNotInitialized
	}
	id := jws.Signatures[0].Header.KeyID
	candidates := 0
	for i := range *keys {
		jsonWebKey := &(*keys)[i]
		if id != "" && jsonWebKey.KeyID != id {
			continue
		}
		if candidates++; candidates > maxCandidates {
			break
		}
		if payload, err := jws.Verify(jsonWebKey); err == nil {
			return payload, nil
		}
	}
	return nil, errNoKey
}
