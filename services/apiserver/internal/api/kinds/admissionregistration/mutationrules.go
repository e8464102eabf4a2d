package admissionregistration

import (
	"strings"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	alphav1 "k8s.io/api/admissionregistration/v1alpha1"

	"binnacle/libs/celenv"
	"binnacle/services/apiserver/internal/cel/expressions"
	"binnacle/services/apiserver/internal/cel/policyform"
	"binnacle/services/apiserver/internal/registry/validate"
)

// validateMutatingPolicy validates a policy. old is the live one, or nil.
func validateMutatingPolicy(fld validate.Field, p, old *alphav1.MutatingAdmissionPolicy, compile compiler) {
	spec, s := fld.Child("spec"), &p.Spec
	compile = compile.forObject()
	visible := expressions.VariableSet{Params: s.ParamKind != nil, Authorizer: true}
	spec.RequireSet("failurePolicy", s.FailurePolicy != nil)
	validateFailureAndMatchPolicy(spec, (*admissionregistrationv1.FailurePolicyType)(s.FailurePolicy), nil)
	validate.Optional(spec, "paramKind", (*admissionregistrationv1.ParamKind)(s.ParamKind), validateParamKind)
	spec.RequireSet("matchConstraints", s.MatchConstraints != nil)
	validate.Optional(
		spec,
		"matchConstraints",
		policyform.Match(s.MatchConstraints),
		func(fld validate.Field, m *admissionregistrationv1.MatchResources) {
			validateMatchResources(fld, m)
			fld.RequireSet("resourceRules", len(m.ResourceRules) > 0)
			forbidDeleteOperation(fld, m)
		},
	)
	if old == nil || !validate.SemanticEqual(s.ParamKind, old.Spec.ParamKind) ||
		!validate.SemanticEqual(s.MatchConditions, old.Spec.MatchConditions) {
		validateMatchConditions(spec, policyform.Conditions(s.MatchConditions), visible, compile)
	}
	if engine := compilerOrError(spec, "mutations", compile); engine != nil {
		policy := engine.Policy()
		validate.Each(
			spec,
			"variables",
			policyform.Variables(s.Variables),
			func(fld validate.Field, v *admissionregistrationv1.Variable) {
				validateVariable(fld, v, visible, policy)
			},
		)
		spec.RequireSetWithDetail("mutations", len(s.Mutations) > 0, "mutations must contain at least one item")
		visible.Patches = true
		validate.Each(
			spec,
			"mutations",
			s.Mutations,
			func(fld validate.Field, m *alphav1.Mutation) { validateMutation(fld, m, visible, policy) },
		)
	}
	if s.ReinvocationPolicy == "" {
		spec.Required("reinvocationPolicy", "")
	} else {
		validate.OneOf(spec, "reinvocationPolicy", s.ReinvocationPolicy, admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
	}
}

// forbidDeleteOperation validates the operations that a policy or a binding matches. Deletions
// cannot be mutated.
func forbidDeleteOperation(fld validate.Field, m *admissionregistrationv1.MatchResources) {
	for i := range m.ResourceRules {
		for _, o := range m.ResourceRules[i].Operations {
			validate.OneOf(fld.Child("resourceRules"), "operations", o,
				admissionregistrationv1.OperationAll, admissionregistrationv1.Connect, admissionregistrationv1.Create, admissionregistrationv1.Update)
		}
	}
}

// validateMutation requires the expression of the patch type, and forbids that of the other type.
func validateMutation(fld validate.Field, mutation *alphav1.Mutation, visible expressions.VariableSet, policy *expressions.Policy) {
	configuration, patch := "", ""
	if mutation.ApplyConfiguration != nil {
		configuration = mutation.ApplyConfiguration.Expression
	}
	if mutation.JSONPatch != nil {
		patch = mutation.JSONPatch.Expression
	}
	const must, mustNot = "must be specified when patchType is ", "must not be specified when patchType is "
	// requireOnly validates the field of the patch type. isSet reports whether it is set, and isOtherSet
	// whether the field of the other type is.
	requireOnly := func(name string, isSet bool, expression string, resultType *cel.Type, other string, isOtherSet bool) {
		if !isSet {
			fld.Required(name, must+string(mutation.PatchType))
		} else if within := fld.Child(name); strings.TrimSpace(expression) == "" {
			within.Required("expression", "")
		} else {
			reportInvalidExpression(within, "expression", expression, policy.Check(visible, expression, resultType))
		}
		if isOtherSet {
			fld.Invalid(other, "{"+other+"}", mustNot+string(mutation.PatchType))
		}
	}
	switch mutation.PatchType {
	case alphav1.PatchTypeApplyConfiguration:
		requireOnly("applyConfiguration", mutation.ApplyConfiguration != nil, configuration, celenv.ObjectType, "jsonPatch", mutation.JSONPatch != nil)
	case alphav1.PatchTypeJSONPatch:
		requireOnly(
			"jsonPatch",
			mutation.JSONPatch != nil,
			patch,
			cel.ListType(celenv.JSONPatchType),
			"applyConfiguration",
			mutation.ApplyConfiguration != nil,
		)
	case "":
		fld.Required("patchType", "")
	default:
		validate.OneOf(fld, "patchType", mutation.PatchType, alphav1.PatchTypeApplyConfiguration, alphav1.PatchTypeJSONPatch)
	}
}

// validateMutatingBinding validates a new or changed binding.
func validateMutatingBinding(fld validate.Field, apiBinding, _ *alphav1.MutatingAdmissionPolicyBinding) {
	spec := fld.Child("spec")
	spec.CheckRequiredText("policyName", apiBinding.Spec.PolicyName, validate.DNSSubdomain)
	validate.Optional(spec, "paramRef", policyform.ParamRef(apiBinding.Spec.ParamRef), validateParamRef)
	validate.Optional(
		spec,
		"matchResources",
		policyform.Match(apiBinding.Spec.MatchResources),
		func(fld validate.Field, m *admissionregistrationv1.MatchResources) {
			validateMatchResources(fld, m)
			forbidDeleteOperation(fld, m)
		},
	)
}
