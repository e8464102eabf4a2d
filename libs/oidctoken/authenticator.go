package oidctoken

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	utiljson "sigs.k8s.io/json"

	"binnacle/libs/authenticator"
)

// Authenticator authenticates tokens that a provider issued for one of several audiences.
type Authenticator struct {
	provider  *Provider
	audiences []string
	rules     Rules
}

// New returns an authenticator. The caller runs the provider.
func New(p *Provider, audiences []string, rules Rules) (*Authenticator, error) {
	if len(audiences) == 0 {
		return nil, errors.New("at least one audience is required")
	}
	return &Authenticator{provider: p, audiences: slices.Clone(audiences), rules: rules}, nil
}

// Provider returns the issuer of the tokens.
func (a *Authenticator) Provider() *Provider { return a.provider }

// AuthenticateToken implements authenticator.Token. It ignores the requested audiences, which are
// not those of ID tokens; see authenticator.ForAudiences.
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string, _ []string) (*authenticator.Response, bool, error) {
	if len(token) > authenticator.MaxTokenBytes {
		return nil, false, authenticator.ErrTooLong
	}
	if Issuer(token) != a.provider.config.IssuerURL {
		return nil, false, nil
	}
	if !a.provider.ensureInitialized(ctx) {
		return nil, false, authenticator.Unavailable(fmt.Errorf("oidc: authenticator for issuer %q is %w",
			a.provider.config.IssuerURL, ErrNotInitialized))
	}
	resp, err := a.authenticate(ctx, token)
	if err != nil {
		err = fmt.Errorf("oidc: %w", err)
		if ctx.Err() != nil {
			err = authenticator.Unavailable(err)
		}
		return nil, false, err
	}
	return resp, true, nil
}

// authenticate verifies a token and maps its claims to a user.
func (a *Authenticator) authenticate(ctx context.Context, token string) (*authenticator.Response, error) {
	v, err := a.verifyToken(ctx, a.provider, token)
	if err != nil {
		return nil, err
	}
	expires, err := a.addDistributedClaim(ctx, v.claims, v.payload, a.rules.DistributedClaim())
	if err != nil {
		return nil, err
	}
	user, err := a.rules.User(ctx, v.claims)
	if err != nil {
		return nil, err
	}
	if expires.IsZero() || v.expires.Before(expires) {
		expires = v.expires
	}
	return &authenticator.Response{User: user, Expires: expires}, nil
}

// verifiedToken is the content of a token with valid signature, issuer, audience and times.
type verifiedToken struct {
	payload json.RawMessage
	claims  Claims
	expires time.Time
}

// verifyToken verifies a token of an issuer.
func (a *Authenticator) verifyToken(ctx context.Context, issuer *Provider, token string) (*verifiedToken, error) {
	idToken, err := issuer.verifier.Verify(ctx, token)
	if err != nil {
		err = fmt.Errorf("verify token: %w", err)
		if issuer.keys.Load() == nil { // the token may be valid
			err = authenticator.Unavailable(err)
		}
		return nil, err
	}
	if len(authenticator.Intersect(idToken.Audience, a.audiences)) == 0 {
		return nil, fmt.Errorf("verify token: expected audience in %q got %q", a.audiences, idToken.Audience)
	}
	v := &verifiedToken{claims: Claims{}, expires: idToken.Expiry}
	if err := idToken.Claims(&v.payload); err != nil {
		return nil, fmt.Errorf("parse claims: %w", err)
	}
	if err := checkNotBefore(v.payload, time.Now()); err != nil {
		return nil, fmt.Errorf("verify token: %w", err)
	}
	if err := utiljson.UnmarshalCaseSensitivePreserveInts(v.payload, (*map[string]any)(&v.claims)); err != nil {
		return nil, fmt.Errorf("parse claims: %w", err)
	}
	return v, nil
}

// notBeforeLeeway is the tolerated difference to the issuer's clock. The verifier allows five
// minutes, kube-apiserver one.
const notBeforeLeeway = time.Minute

// checkNotBefore returns an error if the claim nbf of a token is in the future.
func checkNotBefore(payload []byte, now time.Time) error {
	var claims struct {
		NotBefore *json.Number `json:"nbf"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return fmt.Errorf("parse nbf: %w", err)
	}
	if claims.NotBefore == nil {
		return nil
	}
	seconds, err := claims.NotBefore.Float64()
	if err != nil {
		return fmt.Errorf("parse nbf: %w", err)
	}
	if seconds > float64(now.Add(notBeforeLeeway).UnixNano())/1e9 {
		return fmt.Errorf("token is not valid yet: nbf is more than %v ahead", notBeforeLeeway)
	}
	return nil
}

// Issuer returns the unverified issuer of a token, or "" if it is not a JWT.
func Issuer(token string) string {
	_, payloadAndSignature, ok := strings.Cut(token, ".")
	if !ok {
		return ""
	}
	payload, signature, ok := strings.Cut(payloadAndSignature, ".")
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
	if claims.Issuer == googleWithoutScheme {
		return "https://" + googleWithoutScheme
	}
	return claims.Issuer
}

// googleWithoutScheme is the issuer that tokens of Google may contain (OpenID Connect Core 1.0,
// section 15.6.2).
const googleWithoutScheme = "accounts.google.com"
