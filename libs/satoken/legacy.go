package satoken

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/api"
	"binnacle/libs/authenticator"
)

// Labels of secrets that hold a token: since when it has been withdrawn, and on
// which day it was used last.
const (
	InvalidSince = api.LabelDomain + "/legacy-token-invalid-since"
	LastUsed     = api.LabelDomain + "/legacy-token-last-used"
)

// legacy checks a token that lives in a secret.
func (a *Authenticator) legacy(ctx context.Context, token string, c *Claims) (*authenticator.Response, error) {
	switch {
	case c.LegacyNamespace == "":
		return nil, errors.New("namespace claim is missing")
	case c.LegacySecretName == "":
		return nil, errors.New("secretName claim is missing")
	case c.LegacyName == "":
		return nil, errors.New("serviceAccountName claim is missing")
	case c.LegacyUID == "":
		return nil, errors.New("serviceAccountUID claim is missing")
	case c.Subject != Username(c.LegacyNamespace, c.LegacyName):
		return nil, errors.New("sub claim is invalid")
	}
	if err := a.inTime(c, a.Now()); err != nil {
		return nil, err
	}
	if a.Lookup {
		if err := a.secretHolds(ctx, token, c); err != nil {
			return nil, err
		}
	}
	a.Observe(UseLegacy)
	r := &authenticator.Response{User: authenticator.User{
		Name: Username(c.LegacyNamespace, c.LegacyName), UID: c.LegacyUID, Groups: Groups(c.LegacyNamespace),
	}}
	if c.ExpiresAt != nil {
		r.Expires = c.ExpiresAt.Add(Leeway)
	}
	return r, nil
}

// secretHolds checks that the token is still the one in its secret, and that the
// account is still the same.
func (a *Authenticator) secretHolds(ctx context.Context, token string, c *Claims) error {
	secret, err := a.Objects.Secret(ctx, c.LegacyNamespace, c.LegacySecretName)
	switch {
	case apierrors.IsNotFound(err), err == nil && secret.DeletionTimestamp != nil:
		return errors.New("token has been invalidated")
	case err != nil:
		return authenticator.Unavailable(fmt.Errorf("look up the secret of the token: %w", err))
	}
	if subtle.ConstantTimeCompare(secret.Data[corev1.ServiceAccountTokenKey], []byte(token)) != 1 {
		return errors.New("token does not match server's copy")
	}
	sa, err := a.Objects.ServiceAccount(ctx, c.LegacyNamespace, c.LegacyName)
	switch {
	case apierrors.IsNotFound(err), err == nil && sa.DeletionTimestamp != nil:
		return fmt.Errorf("service account %s/%s has been deleted", c.LegacyNamespace, c.LegacyName)
	case err != nil:
		return authenticator.Unavailable(fmt.Errorf("look up the service account of the token: %w", err))
	case string(sa.UID) != c.LegacyUID:
		return fmt.Errorf("service account UID (%s) does not match claim (%s)", sa.UID, c.LegacyUID)
	}
	if secret.Labels[InvalidSince] != "" {
		a.Observe(UseLegacyInvalid)
		return fmt.Errorf("the token in secret %s/%s has been marked invalid: use tokens of TokenRequest, or remove the label %s for the time being", secret.Namespace, secret.Name, InvalidSince)
	}
	use := UseLegacyManual
	if slices.ContainsFunc(sa.Secrets, func(r corev1.ObjectReference) bool { return r.Name == secret.Name }) {
		use = UseLegacyAuto
	}
	a.Observe(use)
	return nil
}
