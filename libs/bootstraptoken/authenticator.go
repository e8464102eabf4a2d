package bootstraptoken

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/authenticator"
)

// Secrets looks up secrets. For a missing secret the error satisfies apierrors.IsNotFound.
type Secrets interface {
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// Authenticator authenticates bootstrap tokens.
type Authenticator struct {
	secrets Secrets
	now     func() time.Time
}

// New returns an authenticator. now is the clock; nil means time.Now.
func New(secrets Secrets, now func() time.Time) *Authenticator {
	if now == nil {
		now = time.Now
	}
	return &Authenticator{secrets: secrets, now: now}
}

// AuthenticateToken implements authenticator.Token. It ignores values without the form of a
// bootstrap token. It does not support audiences.
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string, _ []string) (*authenticator.Response, bool, error) {
	id, secret, ok := Split(token)
	if !ok {
		return nil, false, nil
	}
	t, err := a.loadToken(ctx, id)
	if err != nil {
		return nil, false, err
	}
	if subtle.ConstantTimeCompare([]byte(t.Secret), []byte(secret)) != 1 {
		return nil, false, errors.New("bootstrap token: the secret is wrong")
	}
	switch {
	case t.Expired(a.now()):
		return nil, false, fmt.Errorf("bootstrap token %s has expired", id)
	case !t.Authentication:
		return nil, false, fmt.Errorf("bootstrap token %s is not for authentication", id)
	}
	return &authenticator.Response{
		User:    authenticator.User{Name: UserPrefix + id, Groups: t.Groups},
		Expires: t.Expires,
	}, true, nil
}

// loadToken returns the token with an id.
func (a *Authenticator) loadToken(ctx context.Context, id string) (*Token, error) {
	secret, err := a.secrets.Secret(ctx, Namespace, SecretName(id))
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("bootstrap token %q not found", id)
	case err != nil:
		return nil, authenticator.Unavailable(fmt.Errorf("look up bootstrap token %s: %w", id, err))
	case secret.DeletionTimestamp != nil:
		return nil, fmt.Errorf("bootstrap token %s has been deleted", id)
	}
	return Parse(secret)
}
