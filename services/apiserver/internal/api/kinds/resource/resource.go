// Package resource declares the kinds of the group resource.k8s.io, v1alpha3, v1beta1 and v1beta2,
// with one file for each kind. The group is off by default. The package has no state. Kinds returns
// new values for the catalog of built-in kinds.
package resource

import (
	"sync"

	resourcev1beta1 "k8s.io/api/resource/v1beta1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
)

const (
	group = resourcev1beta1.GroupName
	// stored is the version that the previous release supports.
	stored = "v1beta1"
	newest = "v1beta2"
)

// Kinds returns the kinds of the group, ordered by version and resource.
func Kinds(s registry.Settings) []*registry.Kind {
	gates := gatesOf(s)
	compile := compiler(sync.OnceValues(newCompiler))
	return []*registry.Kind{
		deviceClassesBeta2(compile),
		resourceClaimsBeta2(compile, gates),
		resourceClaimTemplatesBeta2(compile, gates),
		resourceSlicesBeta2(gates),
		deviceClasses(compile),
		resourceClaims(compile, gates),
		resourceClaimTemplates(compile, gates),
		resourceSlices(gates),
		declare.AdditionalVersion(alpha3, deviceClasses(compile)),
		deviceTaintRules(compile),
		declare.AdditionalVersion(alpha3, resourceClaims(compile, gates)),
		declare.AdditionalVersion(alpha3, resourceClaimTemplates(compile, gates)),
		resourceSlicesAlpha3(gates),
	}
}
