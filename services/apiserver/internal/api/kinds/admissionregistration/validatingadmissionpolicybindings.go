package admissionregistration

import (
	"cmp"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

// validatingAdmissionPolicyBindings declares the cluster-scoped kind
// ValidatingAdmissionPolicyBinding.
func validatingAdmissionPolicyBindings() *registry.Kind {
	return declare.Kind[admissionregistrationv1.ValidatingAdmissionPolicyBinding, admissionregistrationv1.ValidatingAdmissionPolicyBindingList](complete(&registry.Kind{
		Names: registry.Names{Version: version, Resource: "validatingadmissionpolicybindings", Kind: "ValidatingAdmissionPolicyBinding"},
		Parts: declare.SpecAccessors(func(v *admissionregistrationv1.ValidatingAdmissionPolicyBinding) *admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec {
			return &v.Spec
		}),
		Default: declare.Adapt(defaultPolicyBinding),
		Presentation: registry.Presentation{Columns: []registry.Column{
			columns.Name(),
			columns.Text(
				"PolicyName",
				"PolicyName indicates the policy definition which the policy binding binded to",
				func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) string {
					return b.Spec.PolicyName
				},
			),
			columns.Text(
				"ParamRef",
				"ParamRef indicates the param resource which sets the configration param",
				func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) string {
					return paramText(b.Spec.ParamRef)
				},
			),
			columns.Age(),
		}},
	}, validateBinding))
}

// paramText returns the parameter's name or selector. A name without a namespace may be in any
// namespace, or cluster-scoped.
func paramText(ref *admissionregistrationv1.ParamRef) string {
	switch {
	case ref == nil:
		return columns.Unset
	case ref.Name != "":
		return cmp.Or(ref.Namespace, "*") + "/" + ref.Name
	case ref.Selector != nil:
		return ref.Selector.String()
	default:
		return columns.Unset
	}
}
