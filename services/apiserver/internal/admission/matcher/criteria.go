package matcher

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Criteria select the requests of a webhook or policy.
type Criteria struct {
	// A request must match one of Rules and none of Exclude. Rules without names match objects of
	// every name.
	Rules, Exclude []admissionregistrationv1.NamedRuleWithOperations
	// Exact matches only the versions that a rule names, and not equivalent ones.
	Exact bool
	// Namespaces and Objects are selectors; nil selects everything.
	Namespaces, Objects *metav1.LabelSelector
}

// CompiledCriteria is the compiled form of Criteria.
type CompiledCriteria struct {
	rules, exclude []rule
	exact          bool
	// namespaces and objects are nil if they select everything.
	namespaces, objects labels.Selector
}

// Compile compiles criteria. It returns an error for an invalid selector.
func Compile(criteria Criteria) (*CompiledCriteria, error) {
	out := &CompiledCriteria{exact: criteria.Exact, rules: compileRules(criteria.Rules), exclude: compileRules(criteria.Exclude)}
	var err error
	if out.namespaces, err = compileSelector(criteria.Namespaces); err != nil {
		return nil, fmt.Errorf("namespaceSelector: %w", err)
	}
	if out.objects, err = compileSelector(criteria.Objects); err != nil {
		return nil, fmt.Errorf("objectSelector: %w", err)
	}
	return out, nil
}

// compileSelector returns nil if selector is missing or selects everything.
func compileSelector(selector *metav1.LabelSelector) (labels.Selector, error) {
	if selector == nil {
		return nil, nil
	}
	out, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil || out.Empty() {
		return nil, err
	}
	return out, nil
}

// Unnamed converts rules without names to the type that Criteria expects.
func Unnamed(rules []admissionregistrationv1.RuleWithOperations) []admissionregistrationv1.NamedRuleWithOperations {
	out := make([]admissionregistrationv1.NamedRuleWithOperations, len(rules))
	for i := range rules {
		out[i].RuleWithOperations = rules[i]
	}
	return out
}
