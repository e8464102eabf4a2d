package authz

import (
	"context"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"

	"binnacle/services/apiserver/internal/request"
)

// MayOnSigner reports whether a user may perform a verb, such as "approve" or "sign", on a signer
// of certificates. The permission may name the signer, or all signers of its domain as domain/*. It
// returns false if the authorizer fails.
func MayOnSigner(ctx context.Context, authz Authorizer, user *request.User, verb, signer string) bool {
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, domain + "/*"} {
		decision, _, err := authz.Authorize(ctx, &Attributes{
			User:         user,
			Verb:         verb,
			Resource:     true,
			Group:        certificatesv1.GroupName,
			Version:      "*",
			ResourceName: "signers",
			Name:         name,
		})
		if err == nil && decision == Allow {
			return true
		}
	}
	return false
}
