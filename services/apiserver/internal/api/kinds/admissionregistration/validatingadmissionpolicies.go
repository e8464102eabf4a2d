package admissionregistration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// validatingAdmissionPolicies declares the cluster-scoped kind ValidatingAdmissionPolicy.
func validatingAdmissionPolicies(compile compiler) *registry.Kind {
	return declare.Kind[admissionregistrationv1.ValidatingAdmissionPolicy, admissionregistrationv1.ValidatingAdmissionPolicyList](complete(&registry.Kind{
		Names: registry.Names{Version: version, Resource: "validatingadmissionpolicies", Kind: "ValidatingAdmissionPolicy"},
		Parts: declare.SpecStatusAccessors(func(v *admissionregistrationv1.ValidatingAdmissionPolicy) (*admissionregistrationv1.ValidatingAdmissionPolicySpec, *admissionregistrationv1.ValidatingAdmissionPolicyStatus) {
			return &v.Spec, &v.Status
		}),
		Default: declare.Adapt(defaultPolicy),
		Presentation: registry.Presentation{Columns: []registry.Column{
			columns.Name(),
			columns.Int(
				"Validations",
				"Validations indicates the number of validation rules defined in this configuration",
				func(p *admissionregistrationv1.ValidatingAdmissionPolicy) int64 {
					return int64(len(p.Spec.Validations))
				},
			),
			columns.Text(
				"ParamKind",
				"ParamKind specifies the kind of resources used to parameterize this policy",
				func(p *admissionregistrationv1.ValidatingAdmissionPolicy) string {
					if k := p.Spec.ParamKind; k != nil {
						return k.APIVersion + "/" + k.Kind
					}
					return columns.Unset
				},
			),
			columns.Age(),
		}},
		Subresources: []registry.Subresource{
			declare.WithResetFields(
				declare.ValidatedView("status", "ValidatingAdmissionPolicy", func(p, old *admissionregistrationv1.ValidatingAdmissionPolicy) {
					p.Spec = old.Spec
					declare.ResetMetaForStatus(p, old)
				}, validatePolicyStatus),
				"metadata",
				"spec",
			),
		},
	}, func(fld validate.Field, p, old *admissionregistrationv1.ValidatingAdmissionPolicy) {
		validatePolicy(fld, p, old, compile)
	}))
}
