package admissionregistration

import (
	alphav1 "k8s.io/api/admissionregistration/v1alpha1"

	"binnacle/services/apiserver/internal/cel/policyform"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

// mutatingAdmissionPolicyBindings declares the cluster-scoped kind MutatingAdmissionPolicyBinding.
func mutatingAdmissionPolicyBindings() *registry.Kind {
	return declare.Kind[alphav1.MutatingAdmissionPolicyBinding, alphav1.MutatingAdmissionPolicyBindingList](complete(&registry.Kind{
		Names: registry.Names{Version: alpha, Resource: "mutatingadmissionpolicybindings", Kind: "MutatingAdmissionPolicyBinding"},
		Parts: declare.SpecAccessors(func(b *alphav1.MutatingAdmissionPolicyBinding) *alphav1.MutatingAdmissionPolicyBindingSpec {
			return &b.Spec
		}),
		Default: declare.Adapt(defaultMutatingBinding),
		Presentation: registry.Presentation{Columns: []registry.Column{
			columns.Name(),
			columns.Text(
				"PolicyName",
				"PolicyName indicates the policy definition which the policy binding binded to",
				func(b *alphav1.MutatingAdmissionPolicyBinding) string {
					return b.Spec.PolicyName
				},
			),
			columns.Text(
				"ParamRef",
				"ParamRef indicates the param resource which sets the configration param",
				func(b *alphav1.MutatingAdmissionPolicyBinding) string {
					return paramText(policyform.ParamRef(b.Spec.ParamRef))
				},
			),
			columns.Age(),
		}},
	}, validateMutatingBinding))
}
