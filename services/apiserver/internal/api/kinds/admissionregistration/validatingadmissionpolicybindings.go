package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// validatingAdmissionPolicyBindings declares the cluster-scoped kind
// ValidatingAdmissionPolicyBinding.
func validatingAdmissionPolicyBindings() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group:                      group,
			Version:                    version,
			Resource:                   "validatingadmissionpolicybindings",
			Singular:                   "validatingadmissionpolicybinding",
			Kind:                       "ValidatingAdmissionPolicyBinding",
			Categories:                 categories(),
			AllowUnqualifiedFinalizers: true,
		},
		New:     declare.New[admissionv1.ValidatingAdmissionPolicyBinding],
		NewList: declare.New[admissionv1.ValidatingAdmissionPolicyBindingList],
		Parts: declare.SpecAccessors(
			func(v *admissionv1.ValidatingAdmissionPolicyBinding) *admissionv1.ValidatingAdmissionPolicyBindingSpec {
				return &v.Spec
			},
		),
		Stored:  registry.StorageForm{Prefix: "validatingadmissionpolicybindings"},
		Default: declare.Adapt(defaultPolicyBinding),
		Create:  registry.Create{Validate: declare.AdaptValidation(validateBinding)},
		Update: registry.Update{
			Order:                  updateOrder(),
			Generation:             true,
			RequireResourceVersion: true,
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, b, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
				validateBinding(fld, b)
			}),
		},
		Presentation: registry.Presentation{Columns: []registry.Column{
			columns.Name(),
			columns.Text(
				"PolicyName",
				"PolicyName indicates the policy definition which the policy binding binded to",
				func(b *admissionv1.ValidatingAdmissionPolicyBinding) string {
					return b.Spec.PolicyName
				},
			),
			columns.Text(
				"ParamRef",
				"ParamRef indicates the param resource which sets the configration param",
				func(b *admissionv1.ValidatingAdmissionPolicyBinding) string {
					return paramText(b.Spec.ParamRef)
				},
			),
			columns.Age(),
		}},
	}
}

// paramText returns the parameter's name or selector. A name without a namespace may be in any
// namespace, or cluster-scoped.
func paramText(ref *admissionv1.ParamRef) string {
	switch {
	case ref == nil:
		return columns.Unset
	case ref.Name != "":
		return columns.DefaultString(ref.Namespace, "*") + "/" + ref.Name
	case ref.Selector != nil:
		return ref.Selector.String()
	default:
		return columns.Unset
	}
}
