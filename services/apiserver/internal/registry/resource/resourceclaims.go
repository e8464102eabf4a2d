package resource

import (
	"strings"

	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

func resourceClaims() *registry.Kind {
	return &registry.Kind{
		Group: group, Version: version, Resource: "resourceclaims", Singular: "resourceclaim", Kind: "ResourceClaim",
		Namespaced:     true,
		New:            declare.New[resourcev1beta1.ResourceClaim],
		NewList:        declare.New[resourcev1beta1.ResourceClaimList],
		Stored:         registry.Stored{Prefix: "resourceclaims"},
		Default:        declare.Do(func(c *resourcev1beta1.ResourceClaim) { defaultClaim(&c.Spec) }),
		ReturnDeleted:  true,
		ValidateUpdate: declare.GetChange(sameClaim),
		Columns: []registry.Column{
			columns.Name(),
			columns.Text("State", "A summary of the current state (allocated, pending, reserved, etc.).", claimState),
			columns.Age(),
		},
		Subresources: []registry.Subresource{declare.Status("ResourceClaim")},
	}
}

// defaultClaim asks for one exact device where nothing else is said.
func defaultClaim(s *resourcev1beta1.ResourceClaimSpec) {
	for i := range s.Devices.Requests {
		r := &s.Devices.Requests[i]
		if len(r.FirstAvailable) > 0 {
			for j := range r.FirstAvailable {
				defaultCount(&r.FirstAvailable[j].AllocationMode, &r.FirstAvailable[j].Count)
			}
			continue
		}
		defaultCount(&r.AllocationMode, &r.Count)
	}
}

func defaultCount(mode *resourcev1beta1.DeviceAllocationMode, count *int64) {
	declare.Fill(mode, resourcev1beta1.DeviceAllocationModeExactCount)
	if *mode == resourcev1beta1.DeviceAllocationModeExactCount {
		declare.Fill(count, 1)
	}
}

func sameClaim(c, old *resourcev1beta1.ResourceClaim) field.ErrorList {
	if apiequality.Semantic.DeepEqual(c.Spec, old.Spec) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec"), c.Spec, "field is immutable")}
}

func claimState(c *resourcev1beta1.ResourceClaim) string {
	var states []string
	if !c.DeletionTimestamp.IsZero() {
		states = append(states, "deleted")
	}
	switch {
	case c.Status.Allocation == nil && len(states) == 0:
		states = append(states, "pending")
	case c.Status.Allocation != nil:
		states = append(states, "allocated")
		if len(c.Status.ReservedFor) > 0 {
			states = append(states, "reserved")
		}
	}
	return strings.Join(states, ",")
}
