package oidctoken

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"binnacle/libs/authenticator"
)

// emailClaim is accepted as a username only if the provider has verified it.
const (
	emailClaim         = "email"
	emailVerifiedClaim = "email_verified"
)

// Claims are the claims of a verified token, decoded from JSON. Whole numbers are int64.
type Claims map[string]any

// String returns a claim, which must be present and a string.
func (c Claims) String(name string) (string, error) {
	v, ok := c[name]
	if !ok {
		return "", fmt.Errorf("claim %q is not present", name)
	}
	s, ok := v.(string)
	if !ok {
		return "", fmt.Errorf("claim %q is not a string", name)
	}
	return s, nil
}

// Strings returns a claim that is a string or a list of strings, or nil if it is absent.
func (c Claims) Strings(name string) ([]string, error) {
	switch v := c[name].(type) {
	case nil:
		return nil, nil
	case string:
		return []string{v}, nil
	case []any:
		out := make([]string, len(v))
		for i, e := range v {
			s, ok := e.(string)
			if !ok {
				return nil, fmt.Errorf("claim %q has an element that is not a string", name)
			}
			out[i] = s
		}
		return out, nil
	}
	return nil, fmt.Errorf("claim %q is neither a string nor a list of strings", name)
}

// Username returns the claim with the user's name, with a prefix. As in Kubernetes the name may be
// empty. An email address is rejected if the claim "email_verified" is false.
func (c Claims) Username(name, prefix string) (string, error) {
	s, err := c.String(name)
	if err != nil {
		return "", fmt.Errorf("username: %w", err)
	}
	if v, ok := c[emailVerifiedClaim]; ok && name == emailClaim {
		verified, ok := v.(bool)
		if !ok {
			return "", fmt.Errorf("username: claim %q is not a boolean", emailVerifiedClaim)
		}
		if !verified {
			return "", errors.New("username: email is not verified")
		}
	}
	return prefix + s, nil
}

// Groups returns the claim with the groups, each with a prefix.
func (c Claims) Groups(name, prefix string) ([]string, error) {
	groups, err := c.Strings(name)
	if err != nil {
		return nil, fmt.Errorf("groups: %w", err)
	}
	for i := range groups {
		groups[i] = prefix + groups[i]
	}
	return groups, nil
}

// Extra returns the credential id of the token, or nil without one.
func (c Claims) Extra() map[string][]string {
	id, ok := c["jti"].(string)
	if !ok || id == "" {
		return nil
	}
	return map[string][]string{authenticator.ExtraCredentialID: {authenticator.TokenID(id)}}
}

// Require checks that a claim has a certain string value.
func (c Claims) Require(name, value string) error {
	s, err := c.String(name)
	if err != nil {
		return fmt.Errorf("required %w", err)
	}
	if s != value {
		return fmt.Errorf("required claim %q has another value than %q", name, value)
	}
	return nil
}

// Rules map the claims of a token to a user, or reject them.
type Rules interface {
	User(ctx context.Context, c Claims) (authenticator.User, error)
	// DistributedClaim returns the name of the claim that is read from a claim source if the token
	// lacks it, or "".
	DistributedClaim() string
}

// ClaimRules are rules that use claims without expressions.
type ClaimRules struct {
	UsernameClaim, UsernamePrefix string
	// GroupsClaim is empty if tokens have no groups.
	GroupsClaim, GroupsPrefix string
	// Required claims and their values.
	Required map[string]string
}

// DistributedClaim implements Rules.
func (r ClaimRules) DistributedClaim() string { return r.GroupsClaim }

// User implements Rules.
func (r ClaimRules) User(_ context.Context, claims Claims) (authenticator.User, error) {
	for _, name := range slices.Sorted(maps.Keys(r.Required)) {
		if err := claims.Require(name, r.Required[name]); err != nil {
			return authenticator.User{}, err
		}
	}
	user := authenticator.User{Extra: claims.Extra()}
	var err error
	if user.Name, err = claims.Username(r.UsernameClaim, r.UsernamePrefix); err != nil {
		return authenticator.User{}, err
	}
	if r.GroupsClaim != "" {
		if user.Groups, err = claims.Groups(r.GroupsClaim, r.GroupsPrefix); err != nil {
			return authenticator.User{}, err
		}
	}
	return user, nil
}
