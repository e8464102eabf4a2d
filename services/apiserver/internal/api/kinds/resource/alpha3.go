package resource

import (
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
)

// alpha3 is the version in which the capacities of devices are plain quantities. Everything else
// equals the first beta.
const alpha3 = "v1alpha3"

// resourceSlicesAlpha3 declares the alpha version of the kind, in which capacities are plain
// quantities.
func resourceSlicesAlpha3(enabled gates) *registry.Kind {
	kind := resourceSlices(enabled)
	kind.Version = alpha3
	kind.New, kind.NewList = declare.New[resourcev1alpha3.ResourceSlice], declare.New[resourcev1alpha3.ResourceSliceList]
	kind.Parts = declare.SpecAccessors(func(r *resourcev1alpha3.ResourceSlice) *resourcev1alpha3.ResourceSliceSpec { return &r.Spec })
	kind.Stored = storageFormOf[resourcev1beta1.ResourceSlice, resourcev1alpha3.ResourceSlice](
		"resourceslices",
		changeEach(
			changeCapacities(wrapQuantity),
			"spec",
			"devices",
		),
		changeEach(changeCapacities(unwrapCapacity), "spec", "devices"),
	)
	kind.Default = declare.Adapt(func(s *resourcev1alpha3.ResourceSlice) {
		for i := range s.Spec.Devices {
			if basic := s.Spec.Devices[i].Basic; basic != nil {
				for j := range basic.Taints {
					defaultTime(&basic.Taints[j].TimeAdded)
				}
			}
		}
	})
	describeSlices(kind, func(s *resourcev1alpha3.ResourceSlice) sliceNames {
		return sliceNames{s.Spec.NodeName, s.Spec.Driver, s.Spec.Pool.Name}
	})
	toNewest := changeEach(func(device map[string]any) {
		changeCapacities(wrapQuantity)(device)
		unnest("basic")(device)
	}, "spec", "devices")
	setPreparation(kind, enabled.dropSliceFieldsAlpha3)
	declare.SetValidation(kind, validateAsNewest[resourcev1alpha3.ResourceSlice](toNewest, validateSlice))
	return kind
}

// changeCapacities applies change to each capacity of a device.
func changeCapacities(change func(any) any) conversion {
	return func(device map[string]any) {
		basic, _ := device["basic"].(map[string]any)
		all, _ := basic["capacity"].(map[string]any)
		for name, c := range all {
			all[name] = change(c)
		}
	}
}

// wrapQuantity returns the stored form of a capacity.
func wrapQuantity(quantity any) any { return map[string]any{"value": quantity} }

// unwrapCapacity returns the alpha form of a capacity.
func unwrapCapacity(capacity any) any {
	c, _ := capacity.(map[string]any)
	return c["value"]
}
