package resource

import (
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

// sliceNames are what a slice says of where its devices are.
type sliceNames struct{ node, driver, pool string }

func resourceSlices() *registry.Kind {
	k := &registry.Kind{
		Group: group, Version: stored, Resource: "resourceslices", Singular: "resourceslice", Kind: "ResourceSlice",
		New:        declare.New[resourcev1beta1.ResourceSlice],
		NewList:    declare.New[resourcev1beta1.ResourceSliceList],
		Stored:     registry.Stored{Prefix: "resourceslices"},
		Generation: true,
		Selectable: []registry.SelectableField{{Label: "spec.nodeName", Index: true}, {Label: "spec.driver"}},
	}
	describeSlices(k, func(s *resourcev1beta1.ResourceSlice) sliceNames {
		return sliceNames{s.Spec.NodeName, s.Spec.Driver, s.Spec.Pool.Name}
	})
	return k
}

func resourceSlicesBeta2() *registry.Kind {
	k := resourceSlices()
	k.Version = newest
	k.New, k.NewList = declare.New[resourcev1beta2.ResourceSlice], declare.New[resourcev1beta2.ResourceSliceList]
	k.Stored = storedAs[resourcev1beta1.ResourceSlice, resourcev1beta2.ResourceSlice]("resourceslices",
		each(nest("basic", "name"), "spec", "devices"), each(lift("basic"), "spec", "devices"))
	describeSlices(k, func(s *resourcev1beta2.ResourceSlice) sliceNames {
		n := sliceNames{driver: s.Spec.Driver, pool: s.Spec.Pool.Name}
		if s.Spec.NodeName != nil {
			n.node = *s.Spec.NodeName
		}
		return n
	})
	return k
}

// describeSlices adds the rules and columns of either version.
func describeSlices[T registry.Object](k *registry.Kind, names func(T) sliceNames) {
	doc := func(name string) string { return columns.Doc(resourcev1beta2.ResourceSliceSpec{}, name) }
	spec := field.NewPath("spec")
	validate := func(s T) (errs field.ErrorList) {
		n := names(s)
		if n.driver == "" {
			errs = append(errs, field.Required(spec.Child("driver"), ""))
		}
		if n.pool == "" {
			errs = append(errs, field.Required(spec.Child("pool", "name"), ""))
		}
		return errs
	}
	k.Validate = declare.Get(validate)
	k.ValidateUpdate = declare.GetChange(func(s, old T) field.ErrorList {
		errs, now, was := validate(s), names(s), names(old)
		if now.driver != was.driver {
			errs = append(errs, field.Invalid(spec.Child("driver"), now.driver, "field is immutable"))
		}
		if now.node != was.node {
			errs = append(errs, field.Invalid(spec.Child("nodeName"), now.node, "field is immutable"))
		}
		return errs
	})
	k.Columns = []registry.Column{
		columns.Name(),
		columns.Text("Node", doc("nodeName"), func(s T) string { return columns.Or(names(s).node, columns.Unset) }),
		columns.Text("Driver", doc("driver"), func(s T) string { return names(s).driver }),
		columns.Text("Pool", doc("pool"), func(s T) string { return names(s).pool }),
		columns.Age(),
	}
}
