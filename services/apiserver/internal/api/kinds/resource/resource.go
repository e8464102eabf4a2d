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
	g := gatesOf(s)
	compile := compiler(sync.OnceValues(newCompiler))
	return []*registry.Kind{
		deviceClassesBeta2(compile),
		resourceClaimsBeta2(compile, g),
		resourceClaimTemplatesBeta2(compile, g),
		resourceSlicesBeta2(g),
		deviceClasses(compile),
		resourceClaims(compile, g),
		resourceClaimTemplates(compile, g),
		resourceSlices(g),
		declare.AdditionalVersion(alpha3, deviceClasses(compile)),
		deviceTaintRules(compile),
		declare.AdditionalVersion(alpha3, resourceClaims(compile, g)),
		declare.AdditionalVersion(alpha3, resourceClaimTemplates(compile, g)),
		resourceSlicesAlpha3(g),
	}
}
