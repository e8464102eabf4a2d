package resource

import (
	"fmt"

	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

// sliceNames holds the names of a slice's node, driver and pool.
type sliceNames struct{ node, driver, pool string }

// sliceToNewest converts a slice to the newest version's form.
var sliceToNewest = changeEach(unnest("basic"), "spec", "devices")

// resourceSlices declares the stored version of the kind.
func resourceSlices(enabled gates) *registry.Kind {
	kind := declare.Kind[resourcev1beta1.ResourceSlice, resourcev1beta1.ResourceSliceList](&registry.Kind{
		Names:  registry.Names{Group: group, Version: stored, Resource: "resourceslices", Kind: "ResourceSlice"},
		Parts:  declare.SpecAccessors(func(r *resourcev1beta1.ResourceSlice) *resourcev1beta1.ResourceSliceSpec { return &r.Spec }),
		Delete: registry.Delete{ReturnObject: true},
		Update: registry.Update{Generation: true},
		Presentation: registry.Presentation{
			Selectable:   []registry.SelectableField{{Label: "spec.nodeName", Index: true}, {Label: "spec.driver"}},
			UnknownLabel: unknownSliceLabel,
		},
	})
	kind.Default = declare.Adapt(func(s *resourcev1beta1.ResourceSlice) {
		for i := range s.Spec.Devices {
			if basic := s.Spec.Devices[i].Basic; basic != nil {
				for j := range basic.Taints {
					defaultTime(&basic.Taints[j].TimeAdded)
				}
			}
		}
	})
	describeSlices(kind, func(s *resourcev1beta1.ResourceSlice) sliceNames {
		return sliceNames{s.Spec.NodeName, s.Spec.Driver, s.Spec.Pool.Name}
	})
	setPreparation(kind, enabled.dropSliceFields)
	declare.SetValidation(kind, validateAsNewest[resourcev1beta1.ResourceSlice](sliceToNewest, validateSlice))
	return kind
}

// resourceSlicesBeta2 declares the newest version of the kind, which has another Go type and the
// same storage.
func resourceSlicesBeta2(enabled gates) *registry.Kind {
	kind := resourceSlices(enabled)
	kind.Version = newest
	kind.New, kind.NewList = declare.New[resourcev1beta2.ResourceSlice], declare.New[resourcev1beta2.ResourceSliceList]
	kind.Parts = declare.SpecAccessors(func(r *resourcev1beta2.ResourceSlice) *resourcev1beta2.ResourceSliceSpec { return &r.Spec })
	kind.Stored = storageFormOf[resourcev1beta1.ResourceSlice, resourcev1beta2.ResourceSlice]("resourceslices",
		changeEach(nest("basic", "name"), "spec", "devices"), sliceToNewest)
	kind.Default = declare.Adapt(func(s *resourcev1beta2.ResourceSlice) {
		for i := range s.Spec.Devices {
			for j := range s.Spec.Devices[i].Taints {
				defaultTime(&s.Spec.Devices[i].Taints[j].TimeAdded)
			}
		}
	})
	setPreparation(kind, enabled.dropSliceFieldsBeta2)
	declare.SetValidation(kind, validateSlice)
	describeSlices(kind, func(s *resourcev1beta2.ResourceSlice) sliceNames {
		n := sliceNames{driver: s.Spec.Driver, pool: s.Spec.Pool.Name}
		if s.Spec.NodeName != nil {
			n.node = *s.Spec.NodeName
		}
		return n
	})
	return kind
}

// describeSlices sets the columns of either version.
func describeSlices[T registry.Object](k *registry.Kind, names func(T) sliceNames) {
	doc := func(name string) string { return columns.Doc(resourcev1beta2.ResourceSliceSpec{}, name) }
	k.Presentation.Columns = []registry.Column{
		columns.Name(),
		columns.Text("Node", doc("nodeName"), func(s T) string { return names(s).node }),
		columns.Text("Driver", doc("driver"), func(s T) string { return names(s).driver }),
		columns.Text("Pool", columns.Doc(resourcev1beta2.ResourcePool{}, "name"), func(s T) string { return names(s).pool }),
		columns.Age(),
	}
}

// unknownSliceLabel returns the error of an unknown field label, which names the kind.
func unknownSliceLabel(kind schema.GroupVersionKind, label string) error {
	return fmt.Errorf("field label not supported for %v: %s", kind, label)
}
