package admissionregistration

import (
	alphav1 "k8s.io/api/admissionregistration/v1alpha1"

	"binnacle/services/apiserver/internal/cel/policyform"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// mutatingAdmissionPolicyBindings declares the cluster-scoped kind MutatingAdmissionPolicyBinding.
func mutatingAdmissionPolicyBindings() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group:                      group,
			Version:                    alpha,
			Resource:                   "mutatingadmissionpolicybindings",
			Singular:                   "mutatingadmissionpolicybinding",
			Kind:                       "MutatingAdmissionPolicyBinding",
			Categories:                 categories(),
			AllowUnqualifiedFinalizers: true,
		},
		New:     declare.New[alphav1.MutatingAdmissionPolicyBinding],
		NewList: declare.New[alphav1.MutatingAdmissionPolicyBindingList],
		Parts: declare.SpecAccessors(func(b *alphav1.MutatingAdmissionPolicyBinding) *alphav1.MutatingAdmissionPolicyBindingSpec {
			return &b.Spec
		}),
		Stored:  registry.StorageForm{Prefix: "mutatingadmissionpolicybindings"},
		Default: declare.Adapt(defaultMutatingBinding),
		Create:  registry.Create{Validate: declare.AdaptValidation(validateMutatingBinding)},
		Update: registry.Update{
			Order:                  updateOrder(),
			Generation:             true,
			RequireResourceVersion: true,
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, b, _ *alphav1.MutatingAdmissionPolicyBinding) {
				validateMutatingBinding(fld, b)
			}),
		},
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
	}
}
