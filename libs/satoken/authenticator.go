package satoken

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"
	corev1 "k8s.io/api/core/v1"

	"binnacle/libs/authenticator"
)

// Objects looks up the objects that tokens are bound to. For a missing object the error satisfies
// apierrors.IsNotFound. Any other error means that the state is unknown.
type Objects interface {
	ServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error)
	Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	Node(ctx context.Context, name string) (*corev1.Node, error)
}

// Use is a kind of token use, for metrics.
type Use string

// Uses: a valid token, a token that should have been renewed, and a token in a secret. Of the
// latter: created with its account (the account lists the secret), created by a user, and rejected
// because the secret is marked invalid.
const (
	UseValid         Use = "valid"
	UseStale         Use = "stale"
	UseLegacy        Use = "legacy"
	UseLegacyAuto    Use = "legacy auto"
	UseLegacyManual  Use = "legacy manual"
	UseLegacyInvalid Use = "legacy invalid"
)

// Config configures an Authenticator.
type Config struct {
	// Issuers whose tokens are accepted, in addition to LegacyIssuer.
	Issuers []string
	Keys    []PublicKey
	// Source returns the keys that may have signed a token with a key id, which may be
	// empty. If nil, these are Keys.
	Source func(ctx context.Context, id string) []PublicKey
	// Audiences that tokens must have if the caller requests none, and that tokens without
	// audiences have.
	Audiences []string
	// Lookup is whether tokens in secrets are valid only while their secret and account exist.
	// Bound tokens are always checked.
	Lookup  bool
	Objects Objects
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Observe receives the use of each valid token; may be nil.
	Observe func(Use)
}

// Leeway is the tolerated clock difference, and how long an object that is marked for deletion
// still counts as existing.
const Leeway = time.Minute

// Authenticator authenticates service account tokens.
type Authenticator struct {
	Config
	parser *jwt.Parser
}

// New returns an authenticator.
func New(config Config) (*Authenticator, error) {
	switch {
	case len(config.Issuers) == 0:
		return nil, errors.New("service account tokens need an issuer")
	case len(config.Keys) == 0 && config.Source == nil:
		return nil, errors.New("service account tokens need a key")
	case config.Objects == nil:
		return nil, errors.New("service account tokens need objects to look up")
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Observe == nil {
		config.Observe = func(Use) {}
	}
	// Times are checked by this package, with the texts and the leeway of Kubernetes.
	parser := jwt.NewParser(jwt.WithoutClaimsValidation(), jwt.WithStrictDecoding())
	return &Authenticator{Config: config, parser: parser}, nil
}

var errUnknownIssuer = errors.New("not a token of this issuer")

// AuthenticateToken implements authenticator.Token. It ignores tokens of other issuers, and values
// that are not signed tokens.
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string,
	audiences []string) (*authenticator.Response, bool, error) {
	if len(token) > authenticator.MaxTokenBytes {
		return nil, false, authenticator.ErrTooLong
	}
	var claims Claims
	_, err := a.parser.ParseWithClaims(token, &claims, func(t *jwt.Token) (any, error) {
		return a.candidateKeys(ctx, t, claims.Issuer)
	})
	if err != nil && !a.isKnownIssuer(claims.Issuer) {
		return nil, false, nil
	}
	if err != nil {
		// The library's errors may quote parts of the token.
		return nil, false, errors.New("service account token: the signature cannot be verified")
	}
	if len(audiences) == 0 {
		audiences = a.Audiences
	}
	tokenAudiences := []string(claims.Audience)
	if len(tokenAudiences) == 0 {
		tokenAudiences = a.Audiences
	}
	accepted := authenticator.Intersect(tokenAudiences, audiences)
	if len(accepted) == 0 && len(a.Audiences) > 0 {
		return nil, false, fmt.Errorf("token audiences %q is invalid for the target audiences %q", tokenAudiences, audiences)
	}
	var resp *authenticator.Response
	if claims.Issuer == LegacyIssuer {
		resp, err = a.authenticateLegacy(ctx, token, &claims)
	} else {
		resp, err = a.authenticateBound(ctx, &claims)
	}
	if err != nil {
		return nil, false, err
	}
	resp.Audiences = accepted
	return resp, true, nil
}

// isKnownIssuer reports whether tokens of an issuer are accepted.
func (a *Authenticator) isKnownIssuer(issuer string) bool {
	return issuer == LegacyIssuer || slices.Contains(a.Issuers, issuer)
}

// candidateKeys returns the keys that may have signed a token: those with its algorithm and, if the
// token has a known key id, with that id.
func (a *Authenticator) candidateKeys(ctx context.Context, token *jwt.Token, issuer string) (any, error) {
	if !a.isKnownIssuer(issuer) {
		return nil, errUnknownIssuer
	}
	if _, ok := token.Header["crit"]; ok {
		return nil, errors.New("critical header parameters are not understood")
	}
	id, _ := token.Header["kid"].(string)
	candidates := a.Keys
	if a.Source != nil {
		candidates = a.Source(ctx, id)
	}
	var set jwt.VerificationKeySet
	for _, publicKey := range candidates {
		if publicKey.Algorithm != token.Method.Alg() {
			continue
		}
		if publicKey.ID == id {
			return publicKey.Key, nil
		}
		set.Keys = append(set.Keys, publicKey.Key)
	}
	if len(set.Keys) == 0 {
		return nil, errors.New("no key of the token's algorithm")
	}
	return set, nil
}

// checkTimes checks the registered time claims.
func (a *Authenticator) checkTimes(claims *Claims, now time.Time) error {
	switch {
	case claims.ExpiresAt != nil && now.Add(-Leeway).After(claims.ExpiresAt.Time):
		return errors.New("service account token has expired")
	case claims.NotBefore != nil && now.Add(Leeway).Before(claims.NotBefore.Time):
		return errors.New("service account token is not valid yet")
	case claims.IssuedAt != nil && now.Add(Leeway).Before(claims.IssuedAt.Time):
		return errors.New("service account token is issued in the future")
	}
	return nil
}
