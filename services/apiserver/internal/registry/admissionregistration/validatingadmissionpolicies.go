package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

func validatingAdmissionPolicies() *registry.Kind {
	return &registry.Kind{
		Group: group, Version: version, Resource: "validatingadmissionpolicies", Singular: "validatingadmissionpolicy", Kind: "ValidatingAdmissionPolicy",
		Categories:         categories(),
		New:                declare.New[admissionv1.ValidatingAdmissionPolicy],
		NewList:            declare.New[admissionv1.ValidatingAdmissionPolicyList],
		Stored:             registry.Stored{Prefix: "validatingadmissionpolicies"},
		Default:            declare.Do(defaultPolicy),
		AnyFinalizer:       true,
		Generation:         true,
		UpdateNeedsVersion: true,
		Columns: []registry.Column{
			columns.Name(),
			columns.Int("Validations", "Validations indicates the number of validation rules defined in this configuration", func(p *admissionv1.ValidatingAdmissionPolicy) int64 {
				return int64(len(p.Spec.Validations))
			}),
			columns.Text("ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy", func(p *admissionv1.ValidatingAdmissionPolicy) string {
				if k := p.Spec.ParamKind; k != nil {
					return k.APIVersion + "/" + k.Kind
				}
				return columns.Unset
			}),
			columns.Age(),
		},
		Subresources: []registry.Subresource{
			declare.View("status", "ValidatingAdmissionPolicy", declare.Change(func(p, old *admissionv1.ValidatingAdmissionPolicy) {
				p.Spec = old.Spec
				declare.KeepMeta(p, old)
			})),
		},
	}
}
