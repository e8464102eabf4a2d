package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

func validatingAdmissionPolicyBindings() *registry.Kind {
	return &registry.Kind{
		Group: group, Version: version, Resource: "validatingadmissionpolicybindings", Singular: "validatingadmissionpolicybinding",
		Kind: "ValidatingAdmissionPolicyBinding", Categories: categories(),
		New:                declare.New[admissionv1.ValidatingAdmissionPolicyBinding],
		NewList:            declare.New[admissionv1.ValidatingAdmissionPolicyBindingList],
		Stored:             registry.Stored{Prefix: "validatingadmissionpolicybindings"},
		Default:            declare.Do(defaultPolicyBinding),
		AnyFinalizer:       true,
		Generation:         true,
		UpdateNeedsVersion: true,
		Columns: []registry.Column{
			columns.Name(),
			columns.Text("PolicyName", "PolicyName indicates the policy definition which the policy binding binded to", func(b *admissionv1.ValidatingAdmissionPolicyBinding) string {
				return b.Spec.PolicyName
			}),
			columns.Text("ParamRef", "ParamRef indicates the param resource which sets the configration param", paramText),
			columns.Age(),
		},
	}
}

// paramText is the parameter's name or selector; a name without a namespace may
// be in any, or in none.
func paramText(b *admissionv1.ValidatingAdmissionPolicyBinding) string {
	switch ref := b.Spec.ParamRef; {
	case ref == nil:
		return columns.Unset
	case ref.Name != "":
		return columns.Or(ref.Namespace, "*") + "/" + ref.Name
	case ref.Selector != nil:
		return ref.Selector.String()
	default:
		return columns.Unset
	}
}
