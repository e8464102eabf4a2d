package oidctoken

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	utiljson "sigs.k8s.io/json"

	"binnacle/libs/authenticator"
)

// Authenticator authenticates the tokens that a provider issued for one of some
// audiences.
type Authenticator struct {
	provider  *Provider
	audiences []string
	rules     Rules
}

// New returns an authenticator. The provider is run by the caller.
func New(p *Provider, audiences []string, rules Rules) (*Authenticator, error) {
	if len(audiences) == 0 {
		return nil, errors.New("at least one audience is required")
	}
	return &Authenticator{provider: p, audiences: slices.Clone(audiences), rules: rules}, nil
}

// Provider returns the issuer of the tokens.
func (a *Authenticator) Provider() *Provider { return a.provider }

// AuthenticateToken implements authenticator.Token. The asker's audiences are
// not those of ID tokens; authenticator.ForAudiences deals with them.
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string, _ []string) (*authenticator.Response, bool, error) {
	if len(token) > authenticator.MaxTokenBytes {
		return nil, false, authenticator.ErrTooLong
	}
	if Issuer(token) != a.provider.config.IssuerURL {
		return nil, false, nil
	}
	if a.provider.keys.Load() == nil {
		return nil, false, authenticator.Unavailable(fmt.Errorf("oidc: authenticator for issuer %q is %w", a.provider.config.IssuerURL, ErrNotInitialized))
	}
	r, err := a.authenticate(ctx, token)
	if err != nil {
		err = fmt.Errorf("oidc: %w", err)
		if ctx.Err() != nil {
			err = authenticator.Unavailable(err)
		}
		return nil, false, err
	}
	return r, true, nil
}

func (a *Authenticator) authenticate(ctx context.Context, token string) (*authenticator.Response, error) {
	t, err := a.provider.verifier.Verify(ctx, token)
	if err != nil {
		return nil, fmt.Errorf("verify token: %w", err)
	}
	if len(authenticator.Intersect(t.Audience, a.audiences)) == 0 {
		return nil, fmt.Errorf("verify token: expected audience in %q got %q", a.audiences, t.Audience)
	}
	var payload json.RawMessage
	if err := t.Claims(&payload); err != nil {
		return nil, fmt.Errorf("parse claims: %w", err)
	}
	claims := Claims{}
	if err := utiljson.UnmarshalCaseSensitivePreserveInts(payload, (*map[string]any)(&claims)); err != nil {
		return nil, fmt.Errorf("parse claims: %w", err)
	}
	user, err := a.rules.User(ctx, claims)
	if err != nil {
		return nil, err
	}
	return &authenticator.Response{User: user, Expires: t.Expiry}, nil
}

// Issuer returns the issuer that a token claims to be of, without believing
// it, and nothing when the token is no JWT.
func Issuer(token string) string {
	_, rest, ok := strings.Cut(token, ".")
	if !ok {
		return ""
	}
	payload, signature, ok := strings.Cut(rest, ".")
	if !ok || strings.Contains(signature, ".") {
		return ""
	}
	raw, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return ""
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if err := json.Unmarshal(raw, &claims); err != nil {
		return ""
	}
	return claims.Issuer
}
