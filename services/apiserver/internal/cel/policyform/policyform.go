// Package policyform converts the parts of v1alpha1 policies that v1 policies have too. The results
// share memory with the arguments where possible.
package policyform

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/api/admissionregistration/v1alpha1"
)

// Match converts the match constraints of a policy or binding.
func Match(match *v1alpha1.MatchResources) *admissionregistrationv1.MatchResources {
	if match == nil {
		return nil
	}
	return &admissionregistrationv1.MatchResources{
		NamespaceSelector:    match.NamespaceSelector,
		ObjectSelector:       match.ObjectSelector,
		MatchPolicy:          (*admissionregistrationv1.MatchPolicyType)(match.MatchPolicy),
		ResourceRules:        convertRules(match.ResourceRules),
		ExcludeResourceRules: convertRules(match.ExcludeResourceRules),
	}
}

func convertRules(in []v1alpha1.NamedRuleWithOperations) []admissionregistrationv1.NamedRuleWithOperations {
	return convertEach(in, func(r v1alpha1.NamedRuleWithOperations) admissionregistrationv1.NamedRuleWithOperations {
		return admissionregistrationv1.NamedRuleWithOperations(r)
	})
}

// Conditions converts the match conditions of a policy.
func Conditions(in []v1alpha1.MatchCondition) []admissionregistrationv1.MatchCondition {
	return convertEach(in, func(c v1alpha1.MatchCondition) admissionregistrationv1.MatchCondition {
		return admissionregistrationv1.MatchCondition(c)
	})
}

// Variables converts the variables of a policy.
func Variables(in []v1alpha1.Variable) []admissionregistrationv1.Variable {
	return convertEach(in, func(v v1alpha1.Variable) admissionregistrationv1.Variable { return admissionregistrationv1.Variable(v) })
}

// ParamRef converts the parameter reference of a binding.
func ParamRef(paramRef *v1alpha1.ParamRef) *admissionregistrationv1.ParamRef {
	if paramRef == nil {
		return nil
	}
	return &admissionregistrationv1.ParamRef{
		Name:                    paramRef.Name,
		Namespace:               paramRef.Namespace,
		Selector:                paramRef.Selector,
		ParameterNotFoundAction: (*admissionregistrationv1.ParameterNotFoundActionType)(paramRef.ParameterNotFoundAction),
	}
}

// convertEach converts the elements of a list with f. It returns nil for nil.
func convertEach[A, B any](in []A, f func(A) B) []B {
	if in == nil {
		return nil
	}
	out := make([]B, len(in))
	for i := range in {
		out[i] = f(in[i])
	}
	return out
}
