package authz

import (
	"context"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"

	"binnacle/services/apiserver/internal/request"
)

// MayOnSigner reports whether a user has a verb, such as "approve" or "sign", on a signer of
// certificates: on its name, or on all signers of its domain, which is the name domain/*. A failing
// authorizer does not allow it.
func MayOnSigner(ctx context.Context, z Authorizer, u *request.User, verb, signer string) bool {
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, domain + "/*"} {
		d, _, err := z.Authorize(ctx, &Attributes{
			User: u, Verb: verb, Resource: true, Group: certificatesv1.GroupName, Version: "*", ResourceName: "signers", Name: name,
		})
		if err == nil && d == Allow {
			return true
		}
	}
	return false
}
