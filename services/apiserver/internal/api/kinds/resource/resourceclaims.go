package resource

import (
	"strings"

	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// resourceClaims declares the version of ResourceClaim that is stored, v1beta1.
func resourceClaims(compile compiler, enabled gates) *registry.Kind {
	kind := declare.Kind[resourcev1beta1.ResourceClaim, resourcev1beta1.ResourceClaimList](&registry.Kind{
		Names: registry.Names{Group: group, Version: stored, Resource: "resourceclaims", Kind: "ResourceClaim", Namespaced: true},
		Parts: declare.SpecStatusAccessors(func(r *resourcev1beta1.ResourceClaim) (*resourcev1beta1.ResourceClaimSpec, *resourcev1beta1.ResourceClaimStatus) {
			return &r.Spec, &r.Status
		}),
		Default: declare.Adapt(func(resourceClaim *resourcev1beta1.ResourceClaim) { defaultClaim(&resourceClaim.Spec) }),
		Delete:  registry.Delete{ReturnObject: true},
		Presentation: registry.Presentation{
			Columns: claimColumns(func(resourceClaim *resourcev1beta1.ResourceClaim) (bool, int) {
				return resourceClaim.Status.Allocation != nil, len(resourceClaim.Status.ReservedFor)
			}),
		},
		Subresources: []registry.Subresource{declare.ValidatedView("status", "ResourceClaim", enabled.prepareClaimStatus,
			validateAsNewest[resourcev1beta1.ResourceClaim](claimToNewest, validateClaimStatus))},
	})
	setPreparation(kind, func(resourceClaim, old *resourcev1beta1.ResourceClaim) {
		if old == nil {
			old = &resourcev1beta1.ResourceClaim{}
		}
		enabled.withAdminAccess(grantsAdminAccess(old.Status.Allocation)).
			dropClaimFields(resourceClaim.Spec.Devices.Requests, old.Spec.Devices.Requests)
	})
	declare.SetValidation(kind, validateAsNewest[resourcev1beta1.ResourceClaim](claimToNewest, compile.validateClaim))
	return kind
}

// claimToNewest converts the JSON of a claim from v1beta1 to v1beta2, like templateToNewest.
var claimToNewest = changeEach(nestExactly, "spec", "devices", "requests")

// claimToStored converts the JSON of a claim from v1beta2 to v1beta1. It reverses claimToNewest.
var claimToStored = changeEach(unnest("exactly"), "spec", "devices", "requests")

// validateClaim validates a claim. old is nil for a create.
func (compile compiler) validateClaim(fld validate.Field, resourceClaim, old *resourcev1beta2.ResourceClaim) {
	if old != nil {
		fld.CheckImmutable("spec", resourceClaim.Spec, old.Spec)
	}
	compile.validateClaimSpec(fld.Child("spec"), &resourceClaim.Spec, old != nil)
}

// resourceClaimsBeta2 declares the newest version of ResourceClaim, v1beta2. Its Go type differs
// from the stored version, so its objects are converted when they are read or written.
func resourceClaimsBeta2(compile compiler, enabled gates) *registry.Kind {
	kind := resourceClaims(compile, enabled)
	kind.Version = newest
	kind.New = declare.New[resourcev1beta2.ResourceClaim]
	kind.NewList = declare.New[resourcev1beta2.ResourceClaimList]
	kind.Parts = declare.SpecStatusAccessors(
		func(r *resourcev1beta2.ResourceClaim) (*resourcev1beta2.ResourceClaimSpec, *resourcev1beta2.ResourceClaimStatus) {
			return &r.Spec, &r.Status
		},
	)
	kind.Stored = storageFormOf[resourcev1beta1.ResourceClaim, resourcev1beta2.ResourceClaim](
		"resourceclaims", claimToStored, claimToNewest)
	kind.Default = declare.Adapt(func(resourceClaim *resourcev1beta2.ResourceClaim) { defaultClaimBeta2(&resourceClaim.Spec) })
	setPreparation(kind, func(resourceClaim, old *resourcev1beta2.ResourceClaim) {
		if old == nil {
			old = &resourcev1beta2.ResourceClaim{}
		}
		enabled.withAdminAccess(grantsAdminAccessBeta2(old.Status.Allocation)).
			dropClaimFieldsBeta2(resourceClaim.Spec.Devices.Requests, old.Spec.Devices.Requests)
	})
	declare.SetValidation(kind, compile.validateClaim)
	kind.Subresources = []registry.Subresource{declare.ValidatedView("status", "ResourceClaim", enabled.prepareClaimStatusBeta2, validateClaimStatus)}
	kind.Presentation.Columns = claimColumns(func(resourceClaim *resourcev1beta2.ResourceClaim) (bool, int) {
		return resourceClaim.Status.Allocation != nil, len(resourceClaim.Status.ReservedFor)
	})
	return kind
}

func defaultClaim(s *resourcev1beta1.ResourceClaimSpec) {
	for i := range s.Devices.Requests {
		deviceRequest := &s.Devices.Requests[i]
		for j := range deviceRequest.FirstAvailable {
			defaultCount(&deviceRequest.FirstAvailable[j].AllocationMode, &deviceRequest.FirstAvailable[j].Count)
			defaultOperators(deviceRequest.FirstAvailable[j].Tolerations)
		}
		if len(deviceRequest.FirstAvailable) == 0 && deviceRequest.DeviceClassName != "" {
			defaultCount(&deviceRequest.AllocationMode, &deviceRequest.Count)
		}
		defaultOperators(deviceRequest.Tolerations)
	}
}

// defaultClaimBeta2 is defaultClaim for the newest version.
func defaultClaimBeta2(s *resourcev1beta2.ResourceClaimSpec) {
	for i := range s.Devices.Requests {
		deviceRequest := &s.Devices.Requests[i]
		for j := range deviceRequest.FirstAvailable {
			defaultCount(&deviceRequest.FirstAvailable[j].AllocationMode, &deviceRequest.FirstAvailable[j].Count)
			defaultOperatorsBeta2(deviceRequest.FirstAvailable[j].Tolerations)
		}
		if deviceRequest.Exactly != nil {
			defaultCount(&deviceRequest.Exactly.AllocationMode, &deviceRequest.Exactly.Count)
			defaultOperatorsBeta2(deviceRequest.Exactly.Tolerations)
		}
	}
}

func defaultOperators(tolerations []resourcev1beta1.DeviceToleration) {
	for i := range tolerations {
		declare.SetDefault(&tolerations[i].Operator, resourcev1beta1.DeviceTolerationOpEqual)
	}
}

// defaultOperatorsBeta2 is defaultOperators for the newest version.
func defaultOperatorsBeta2(tolerations []resourcev1beta2.DeviceToleration) {
	for i := range tolerations {
		declare.SetDefault(&tolerations[i].Operator, resourcev1beta2.DeviceTolerationOpEqual)
	}
}

// claimColumns returns the columns of either version. use reports whether a claim is allocated, and
// the number of its consumers.
func claimColumns[T registry.Object](use func(T) (allocated bool, users int)) []registry.Column {
	return []registry.Column{
		columns.Name(),
		columns.Text("State", "A summary of the current state (allocated, pending, reserved, etc.).", func(c T) string {
			var states []string
			if c.GetDeletionTimestamp() != nil {
				states = append(states, "deleted")
			}
			switch allocated, users := use(c); {
			case allocated && users > 0:
				states = append(states, "allocated", "reserved")
			case allocated:
				states = append(states, "allocated")
			case len(states) == 0:
				states = append(states, "pending")
			}
			return strings.Join(states, ",")
		}),
		columns.Age(),
	}
}
