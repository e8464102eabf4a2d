package coordination

import (
	coordinationv1alpha2 "k8s.io/api/coordination/v1alpha2"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

// leaseCandidates are only served in beta, and so off by default. They are
// stored in the version that the release before knows.
func leaseCandidates() *registry.Kind {
	doc := func(name string) string { return columns.Doc(coordinationv1beta1.LeaseCandidateSpec{}, name) }
	return &registry.Kind{
		Group: group, Version: "v1beta1", Resource: "leasecandidates", Singular: "leasecandidate", Kind: "LeaseCandidate",
		Namespaced:     true,
		New:            declare.New[coordinationv1beta1.LeaseCandidate],
		NewList:        declare.New[coordinationv1beta1.LeaseCandidateList],
		Stored:         registry.Stored{Prefix: "leasecandidates", Version: coordinationv1alpha2.SchemeGroupVersion},
		CreateOnUpdate: true,
		Selectable:     []registry.SelectableField{{Label: "spec.leaseName"}},
		Validate:       declare.Get(validateLeaseCandidate),
		ValidateUpdate: declare.GetChange(func(c, old *coordinationv1beta1.LeaseCandidate) field.ErrorList {
			errs := validateLeaseCandidate(c)
			if c.Spec.LeaseName != old.Spec.LeaseName {
				errs = append(errs, field.Invalid(field.NewPath("spec", "leaseName"), c.Spec.LeaseName, "field is immutable"))
			}
			return errs
		}),
		Columns: []registry.Column{
			columns.Name(),
			columns.Text("LeaseName", doc("leaseName"), func(c *coordinationv1beta1.LeaseCandidate) string { return c.Spec.LeaseName }),
			columns.Text("BinaryVersion", doc("binaryVersion"), func(c *coordinationv1beta1.LeaseCandidate) string { return c.Spec.BinaryVersion }),
			columns.Text("EmulationVersion", doc("emulationVersion"), func(c *coordinationv1beta1.LeaseCandidate) string { return c.Spec.EmulationVersion }),
			columns.Age(),
		},
	}
}

func validateLeaseCandidate(c *coordinationv1beta1.LeaseCandidate) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	for _, f := range [][2]string{{"leaseName", c.Spec.LeaseName}, {"binaryVersion", c.Spec.BinaryVersion}, {"strategy", string(c.Spec.Strategy)}} {
		if f[1] == "" {
			errs = append(errs, field.Required(spec.Child(f[0]), ""))
		}
	}
	return errs
}
