package bootstraptoken_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/bootstraptoken"
)

const secretText = "abcdef0123456789"

// secrets holds Secrets by namespace/name. A lookup of a nil Secret fails with errDown.
type secrets map[string]*corev1.Secret

var errDown = errors.New("down")

func (s secrets) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	if o, ok := s[namespace+"/"+name]; ok {
		if o == nil {
			return nil, errDown
		}
		return o, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
}

func secret(change func(*corev1.Secret)) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-abc123"},
		Type:       "bootstrap.kubernetes.io/token",
		Data: map[string][]byte{
			"token-id": []byte("abc123"), "token-secret": []byte(secretText), "usage-bootstrap-authentication": []byte("true"),
		},
	}
	if change != nil {
		change(s)
	}
	return s
}

func secretWith(key, value string) *corev1.Secret {
	return secret(func(s *corev1.Secret) { s.Data[key] = []byte(value) })
}

// TestTokenIsAcceptedOnlyWithValidSecretObject checks which tokens are accepted, rejected or
// ignored, by the content of their Secret.
func TestTokenIsAcceptedOnlyWithValidSecretObject(t *testing.T) {
	now := time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)
	validToken := "abc123." + secretText
	for name, test := range map[string]struct {
		secret *corev1.Secret
		down   bool
		token  string
		groups []string // of the user; nil if not authenticated
		err    string   // "" with nil groups: the token is ignored
	}{
		"valid": {secret: secret(nil), token: validToken, groups: []string{"system:bootstrappers"}},
		"not yet expired": {
			secret: secretWith("expiration", "2025-06-01T12:00:01Z"),
			token:  validToken,
			groups: []string{"system:bootstrappers"},
		},
		"extra groups": {
			secret: secretWith("auth-extra-groups", "system:bootstrappers:b,system:bootstrappers:a"),
			token:  validToken,
			groups: []string{"system:bootstrappers", "system:bootstrappers:a", "system:bootstrappers:b"},
		},
		"expired":                    {secret: secretWith("expiration", "2025-06-01T12:00:00Z"), token: validToken, err: "has expired"},
		"unreadable expiration":      {secret: secretWith("expiration", "tomorrow"), token: validToken, err: "expiration"},
		"wrong secret":               {secret: secret(nil), token: "abc123.abcdef0123456780", err: "secret is wrong"},
		"no such id":                 {secret: secret(nil), token: "zzz123." + secretText, err: "not found"},
		"id differs from name":       {secret: secretWith("token-id", "abc124"), token: validToken, err: "token-id"},
		"no id":                      {secret: secretWith("token-id", ""), token: validToken, err: "token-id"},
		"short secret in the Secret": {secret: secretWith("token-secret", "abc"), token: validToken, err: "token-secret"},
		"usage off": {
			secret: secretWith("usage-bootstrap-authentication", "false"),
			token:  validToken,
			err:    "not for authentication",
		},
		"usage in capitals": {
			secret: secretWith("usage-bootstrap-authentication", "True"),
			token:  validToken,
			err:    "not for authentication",
		},
		"foreign group": {secret: secretWith("auth-extra-groups", "system:masters"), token: validToken, err: "auth-extra-groups"},
		"group with a space": {
			secret: secretWith("auth-extra-groups", "system:bootstrappers:a, system:bootstrappers:b"),
			token:  validToken,
			err:    "auth-extra-groups",
		},
		"another type": {secret: secret(func(s *corev1.Secret) { s.Type = "Opaque" }), token: validToken, err: "not of type"},
		"being deleted": {
			secret: secret(func(s *corev1.Secret) { s.DeletionTimestamp = &metav1.Time{Time: now} }),
			token:  validToken,
			err:    "deleted",
		},
		"lookup fails": {down: true, token: validToken, err: "down"},
		"capitals":     {secret: secret(nil), token: "ABC123." + secretText},
		"truncated":    {secret: secret(nil), token: validToken[:len(validToken)-1]},
		"longer":       {secret: secret(nil), token: validToken + "0"},
		"a newline":    {secret: secret(nil), token: validToken[:len(validToken)-1] + "\n"},
		"no dot":       {secret: secret(nil), token: strings.Replace(validToken, ".", "0", 1)},
		"empty":        {secret: secret(nil), token: ""},
	} {
		t.Run(name, func(t *testing.T) {
			store := secrets{"kube-system/bootstrap-token-abc123": test.secret}
			if test.secret == nil && !test.down {
				store = secrets{}
			}
			tokens := bootstraptoken.New(store, func() time.Time { return now })
			resp, ok, err := tokens.AuthenticateToken(t.Context(), test.token, nil)
			switch {
			case ok != (test.groups != nil):
				t.Fatalf("got authenticated: %t, %v, want %t", ok, err, test.groups != nil)
			case ok && (resp.User.Name != "system:bootstrap:abc123" || !slices.Equal(resp.User.Groups, test.groups)):
				t.Errorf("got user %+v, want system:bootstrap:abc123 in %q", resp.User, test.groups)
			case !ok && test.err == "" && err != nil:
				t.Errorf("error %v for a value that is not a bootstrap token", err)
			case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
				t.Errorf("error %v, want %q", err, test.err)
			case err != nil && strings.Contains(err.Error(), secretText):
				t.Errorf("error %v contains the secret", err)
			}
		})
	}
}

// TestWrongSecretsDoNotLockToken checks that wrong secrets for a public token id do not lock out
// the node with the token.
func TestWrongSecretsDoNotLockToken(t *testing.T) {
	authenticator := bootstraptoken.New(secrets{"kube-system/bootstrap-token-abc123": secret(nil)}, nil)
	for i := range 1000 {
		guess := fmt.Sprintf("%016d", i)
		if _, ok, err := authenticator.AuthenticateToken(t.Context(), "abc123."+guess, nil); ok || err == nil ||
			!strings.Contains(err.Error(), "the secret is wrong") {
			t.Fatalf("wrong secret %s: %v, %v, want a rejection: the secret is wrong", guess, ok, err)
		}
		if _, ok, err := authenticator.AuthenticateToken(t.Context(), "abc123."+secretText, nil); !ok {
			t.Fatalf("valid secret after %d wrong ones: got %v, want it accepted", i+1, err)
		}
	}
}

// FuzzSplit checks that the parts of each accepted token make up the token.
func FuzzSplit(f *testing.F) {
	f.Add("abc123." + secretText)
	f.Add("abc123.")
	f.Fuzz(func(t *testing.T, token string) {
		id, secret, ok := bootstraptoken.Split(token)
		if ok && (id+"."+secret != token || !bootstraptoken.ValidID(id)) {
			t.Errorf("Split(%q) = %q, %q, want the parts of the token and a valid ID", token, id, secret)
		}
	})
}
