// Package networking declares the kinds of the group networking.k8s.io, v1, with one file for each
// kind. It has no state. Kinds returns new values for the catalog of built-in kinds.
package networking

import (
	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
)

const (
	group   = networkingv1.GroupName
	version = "v1"
	beta    = "v1beta1"
)

// Kinds returns the kinds of the group, ordered by resource.
func Kinds() []*registry.Kind {
	return []*registry.Kind{
		ingressClasses(),
		ingresses(),
		ipAddresses(),
		networkPolicies(),
		serviceCIDRs(),
		declare.AdditionalVersion(beta, ipAddresses()),
		declare.AdditionalVersion(beta, serviceCIDRs()),
	}
}

// betaStorageForm returns the stored form of kinds that became stable in this release. An older
// server must be able to read them, so they are still stored as their beta version, whose encoding
// is the same.
func betaStorageForm(prefix string) registry.StorageForm {
	return registry.StorageForm{Prefix: prefix, Version: networkingv1beta1.SchemeGroupVersion}
}
