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
	return declare.Kind[alphav1.MutatingAdmissionPolicy, alphav1.MutatingAdmissionPolicyList](complete(&registry.Kind{
		Names: registry.Names{Version: alpha, Resource: "mutatingadmissionpolicies", Kind: "MutatingAdmissionPolicy"},
		Parts: declare.SpecAccessors(func(p *alphav1.MutatingAdmissionPolicy) *alphav1.MutatingAdmissionPolicySpec {
			return &p.Spec
		}),
		Default: declare.Adapt(defaultMutatingPolicy),
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
	}, func(fld validate.Field, p, old *alphav1.MutatingAdmissionPolicy) {
		validateMutatingPolicy(fld, p, old, compile)
	}))
}
