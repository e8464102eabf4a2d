package authz_test

import (
	"testing"

	"binnacle/libs/authorizer"
	"binnacle/services/apiserver/internal/security/authz"
)

// TestHealthIsAllowedUntilPolicyIsLoaded checks that anonymous GETs of health endpoints, and
// nothing else, are allowed until the policy is loaded.
func TestHealthIsAllowedUntilPolicyIsLoaded(t *testing.T) {
	anonymous := &authorizer.User{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}}
	for _, test := range []struct {
		attributes authorizer.Attributes
		synced     bool
		want       authorizer.Decision
	}{
		{attributes: authorizer.Attributes{Verb: "get", Path: "/readyz"}, want: authorizer.Allow},
		{attributes: authorizer.Attributes{Verb: "get", Path: "/livez/etcd"}, want: authorizer.Allow},
		{attributes: authorizer.Attributes{Verb: "get", Path: "/healthz"}, want: authorizer.Allow},
		{attributes: authorizer.Attributes{Verb: "post", Path: "/readyz"}},
		{attributes: authorizer.Attributes{Verb: "get", Path: "/metrics"}},
		{attributes: authorizer.Attributes{Verb: "get", Path: "/readyzz"}},
		{attributes: authorizer.Attributes{Verb: "get", Resource: true, Version: "v1", ResourceName: "secrets"}},
		{attributes: authorizer.Attributes{Verb: "get", Path: "/readyz"}, synced: true},
	} {
		test.attributes.User = anonymous
		got, _, err := authz.NewHealth(func() bool { return test.synced }).Authorize(t.Context(), &test.attributes)
		if err != nil || got != test.want {
			t.Errorf("%s %s, loaded %t: got %v, want %v, %v", test.attributes.Verb, test.attributes.Path, test.synced, got, test.want, err)
		}
	}
}
