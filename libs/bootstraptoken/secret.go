package bootstraptoken

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"binnacle/libs/api"
)

// Names of users, groups and secrets.
const (
	UserPrefix   = "system:bootstrap:"
	DefaultGroup = "system:bootstrappers"
	SecretPrefix = "bootstrap-token-"
	SecretType   = corev1.SecretType("bootstrap." + api.LabelDomain + "/token")
	Namespace    = api.SystemNamespace
)

// Keys of a token's secret.
const (
	KeyID             = "token-id"
	KeySecret         = "token-secret"
	KeyExpiration     = "expiration"
	KeyDescription    = "description"
	KeyAuthentication = "usage-bootstrap-authentication"
	KeySigning        = "usage-bootstrap-signing"
	KeyExtraGroups    = "auth-extra-groups"
)

var (
	tokenPattern  = regexp.MustCompile(`\A([a-z0-9]{6})\.([a-z0-9]{16})\z`)
	idPattern     = regexp.MustCompile(`\A[a-z0-9]{6}\z`)
	secretPattern = regexp.MustCompile(`\A[a-z0-9]{16}\z`)
	groupPattern  = regexp.MustCompile(`\Asystem:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]\z`)
)

// tokenBytes is the length of a token.
const tokenBytes = 6 + 1 + 16

// Split splits a token into its id and its secret. It returns false for other values.
func Split(token string) (id, secret string, ok bool) {
	if len(token) != tokenBytes {
		return "", "", false
	}
	m := tokenPattern.FindStringSubmatch(token)
	if m == nil {
		return "", "", false
	}
	return m[1], m[2], true
}

// ValidID reports whether a text has the form of a token id.
func ValidID(id string) bool { return idPattern.MatchString(id) }

// SecretName returns the name of the secret of a token.
func SecretName(id string) string { return SecretPrefix + id }

// Token is the content of a secret.
type Token struct {
	ID, Secret string
	// Expires is zero for tokens without expiry.
	Expires                 time.Time
	Description             string
	Authentication, Signing bool
	// Groups are the groups of the user: the default one and the extra ones, sorted.
	Groups []string
}

// String returns the whole token.
func (t *Token) String() string { return t.ID + "." + t.Secret }

// Expired reports whether the token has expired.
func (t *Token) Expired(now time.Time) bool { return !t.Expires.IsZero() && !now.Before(t.Expires) }

// Parse parses a secret. Errors contain the invalid key but no secret.
func Parse(secret *corev1.Secret) (*Token, error) {
	token := &Token{
		ID: string(secret.Data[KeyID]), Secret: string(secret.Data[KeySecret]), Description: string(secret.Data[KeyDescription]),
		Authentication: string(secret.Data[KeyAuthentication]) == "true", Signing: string(secret.Data[KeySigning]) == "true",
	}
	switch {
	case secret.Type != SecretType:
		return nil, fmt.Errorf("secret %s is not of type %s", secret.Name, SecretType)
	case !idPattern.MatchString(token.ID):
		return nil, fmt.Errorf("secret %s: %s must be six characters of a-z and 0-9", secret.Name, KeyID)
	case secret.Name != SecretName(token.ID):
		return nil, fmt.Errorf("secret %s: %s is not that of its name", secret.Name, KeyID)
	case !secretPattern.MatchString(token.Secret):
		return nil, fmt.Errorf("secret %s: %s must be sixteen characters of a-z and 0-9", secret.Name, KeySecret)
	}
	var err error
	if token.Expires, err = parseExpiration(secret); err != nil {
		return nil, err
	}
	token.Groups, err = parseGroups(string(secret.Data[KeyExtraGroups]))
	if err != nil {
		return nil, fmt.Errorf("secret %s: %s: %w", secret.Name, KeyExtraGroups, err)
	}
	return token, nil
}

// parseExpiration returns the expiry of a token. An invalid time is an error, not unlimited.
func parseExpiration(secret *corev1.Secret) (time.Time, error) {
	text := string(secret.Data[KeyExpiration])
	if text == "" {
		return time.Time{}, nil
	}
	expires, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("secret %s: %s is not a time of RFC 3339", secret.Name, KeyExpiration)
	}
	return expires, nil
}

// parseGroups returns the groups of the user.
func parseGroups(extra string) ([]string, error) {
	out := []string{DefaultGroup}
	if extra == "" {
		return out, nil
	}
	for _, g := range strings.Split(extra, ",") {
		if !groupPattern.MatchString(g) {
			return nil, fmt.Errorf("bootstrap group %q is invalid (must match %s)", g, groupPattern)
		}
		out = append(out, g)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}
