package satoken

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
)

// Signer signs tokens with a local key.
type Signer struct {
	issuer string
	key    crypto.Signer
	public PublicKey
	method jwt.SigningMethod
}

// NewSigner returns a signer for an issuer.
func NewSigner(issuer string, key crypto.Signer) (*Signer, error) {
	if issuer == "" {
		return nil, errors.New("tokens need an issuer")
	}
	public, err := NewPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	return &Signer{issuer: issuer, key: key, public: public, method: jwt.GetSigningMethod(public.Algorithm)}, nil
}

// PublicKey returns the key that verifies the signer's tokens.
func (s *Signer) PublicKey() PublicKey { return s.public }

// Issuer returns the issuer of the tokens.
func (s *Signer) Issuer() string { return s.issuer }

// Bounds of the lifetime of a token, in seconds.
const (
	MinLifetimeSeconds = 10 * 60
	MaxLifetimeSeconds = 1 << 32
)

// Request describes a token to issue.
type Request struct {
	Binding   Binding // without WarnAfter
	Audiences []string
	IssuedAt  time.Time
	Lifetime  time.Duration
	// WarnAfter is the age at which the token counts as stale; 0 means never.
	WarnAfter time.Duration
}

// Sign issues a token and returns it with its id.
func (s *Signer) Sign(r Request) (token, id string, err error) {
	c := r.Claims(s.issuer)
	token, err = s.SignClaims(context.Background(), c)
	return token, c.ID, err
}

// Claims returns the claims of the token, which has a new id.
func (r Request) Claims(issuer string) Claims {
	binding := r.Binding
	if r.WarnAfter > 0 {
		binding.WarnAfter = numericDate(r.IssuedAt.Add(r.WarnAfter))
	}
	return Claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: issuer, Subject: Username(binding.Namespace, binding.ServiceAccount.Name), Audience: r.Audiences, ID: uuid.NewString(),
			IssuedAt:  numericDate(r.IssuedAt),
			NotBefore: numericDate(r.IssuedAt),
			ExpiresAt: numericDate(r.IssuedAt.Add(r.Lifetime)),
		},
		Binding: &binding,
	}
}

// SignClaims returns a signed token with the claims.
func (s *Signer) SignClaims(_ context.Context, c Claims) (string, error) {
	t := jwt.NewWithClaims(s.method, c)
	t.Header = map[string]any{"alg": s.public.Algorithm, "kid": s.public.ID}
	token, err := t.SignedString(s.key)
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	return token, nil
}

// ValidateIssuers returns the errors of the issuers in a server's configuration. Each must be a
// URL or a text without a colon, and must not repeat.
func ValidateIssuers(issuers []string) (errs []error) {
	for i, issuer := range issuers {
		switch {
		case issuer == "":
			errs = append(errs, errors.New("must not be empty"))
		case slices.Contains(issuers[:i], issuer):
			errs = append(errs, fmt.Errorf("%q is given twice", issuer))
		case strings.Contains(issuer, ":"):
			if _, err := url.Parse(issuer); err != nil {
				errs = append(errs, fmt.Errorf("%q contains a colon and is not a URL: %w", issuer, err))
			}
		}
	}
	return errs
}
