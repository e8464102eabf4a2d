// Package certificates declares the kinds of the group certificates.k8s.io, v1, with one file for
// each kind. It has no state. Kinds returns new values for the catalog of built-in kinds.
package certificates

import (
	certificatesv1 "k8s.io/api/certificates/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
)

const (
	group   = certificatesv1.GroupName
	version = "v1"
)

// Kinds returns the kinds of the group.
func Kinds() []*registry.Kind {
	return []*registry.Kind{
		certificateSigningRequests(),
		clusterTrustBundles(),
		declare.AdditionalVersion("v1alpha1", clusterTrustBundles()),
	}
}
