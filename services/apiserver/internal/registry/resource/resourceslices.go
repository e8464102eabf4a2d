package resource

import (
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

func resourceSlices() *registry.Kind {
	doc := func(name string) string { return columns.Doc(resourcev1beta1.ResourceSliceSpec{}, name) }
	return &registry.Kind{
		Group: group, Version: version, Resource: "resourceslices", Singular: "resourceslice", Kind: "ResourceSlice",
		New:        declare.New[resourcev1beta1.ResourceSlice],
		NewList:    declare.New[resourcev1beta1.ResourceSliceList],
		Stored:     registry.Stored{Prefix: "resourceslices"},
		Generation: true,
		Selectable: []registry.SelectableField{{Label: "spec.nodeName", Index: true}, {Label: "spec.driver"}},
		Validate:   declare.Get(validateSlice),
		ValidateUpdate: declare.GetChange(func(s, old *resourcev1beta1.ResourceSlice) field.ErrorList {
			errs := validateSlice(s)
			if s.Spec.Driver != old.Spec.Driver {
				errs = append(errs, field.Invalid(field.NewPath("spec", "driver"), s.Spec.Driver, "field is immutable"))
			}
			if s.Spec.NodeName != old.Spec.NodeName {
				errs = append(errs, field.Invalid(field.NewPath("spec", "nodeName"), s.Spec.NodeName, "field is immutable"))
			}
			return errs
		}),
		Columns: []registry.Column{
			columns.Name(),
			columns.Text("Node", doc("nodeName"), func(s *resourcev1beta1.ResourceSlice) string { return columns.Or(s.Spec.NodeName, columns.Unset) }),
			columns.Text("Driver", doc("driver"), func(s *resourcev1beta1.ResourceSlice) string { return s.Spec.Driver }),
			columns.Text("Pool", doc("pool"), func(s *resourcev1beta1.ResourceSlice) string { return s.Spec.Pool.Name }),
			columns.Age(),
		},
	}
}

func validateSlice(s *resourcev1beta1.ResourceSlice) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	if s.Spec.Driver == "" {
		errs = append(errs, field.Required(spec.Child("driver"), ""))
	}
	if s.Spec.Pool.Name == "" {
		errs = append(errs, field.Required(spec.Child("pool", "name"), ""))
	}
	return errs
}
