package admissionregistration

import (
	alphav1 "k8s.io/api/admissionregistration/v1alpha1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// mutatingAdmissionPolicies declares the cluster-scoped kind MutatingAdmissionPolicy.
func mutatingAdmissionPolicies(compile compiler) *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group:                      group,
			Version:                    alpha,
			Resource:                   "mutatingadmissionpolicies",
			Singular:                   "mutatingadmissionpolicy",
			Kind:                       "MutatingAdmissionPolicy",
			Categories:                 categories(),
			AllowUnqualifiedFinalizers: true,
		},
		New:     declare.New[alphav1.MutatingAdmissionPolicy],
		NewList: declare.New[alphav1.MutatingAdmissionPolicyList],
		Parts: declare.SpecAccessors(func(p *alphav1.MutatingAdmissionPolicy) *alphav1.MutatingAdmissionPolicySpec {
			return &p.Spec
		}),
		Stored:  registry.StorageForm{Prefix: "mutatingadmissionpolicies"},
		Default: declare.Adapt(defaultMutatingPolicy),
		Create: registry.Create{
			Validate: declare.AdaptValidation(func(fld validate.Field, p *alphav1.MutatingAdmissionPolicy) {
				validateMutatingPolicy(fld, p, nil, compile)
			}),
		},
		Update: registry.Update{
			Order:                  updateOrder(),
			Generation:             true,
			RequireResourceVersion: true,
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, p, old *alphav1.MutatingAdmissionPolicy) {
				validateMutatingPolicy(fld, p, old, compile)
			}),
		},
		Presentation: registry.Presentation{Columns: []registry.Column{
			columns.Name(),
			columns.Int(
				"Mutations",
				"Mutations indicates the number of mutations rules defined in this configuration",
				func(p *alphav1.MutatingAdmissionPolicy) int64 {
					return int64(len(p.Spec.Mutations))
				},
			),
			columns.Text(
				"ParamKind",
				"ParamKind specifies the kind of resources used to parameterize this policy",
				func(p *alphav1.MutatingAdmissionPolicy) string {
					if k := p.Spec.ParamKind; k != nil {
						return k.APIVersion + "/" + k.Kind
					}
					return columns.Unset
				},
			),
			columns.Age(),
		}},
	}
}
