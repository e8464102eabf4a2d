package matcher

import (
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Criteria select the requests of a webhook or policy.
type Criteria struct {
	// A request must match one of Rules and none of Exclude. Rules without names match objects of
	// every name.
	Rules, Exclude []admissionv1.NamedRuleWithOperations
	// Exact matches only the versions that a rule names, and not equivalent ones.
	Exact bool
	// Namespaces and Objects are selectors; nil selects everything.
	Namespaces, Objects *metav1.LabelSelector
}

// Criterion holds compiled Criteria.
type Criterion struct {
	rules, exclude      []rule
	exact               bool
	namespaces, objects labels.Selector
}

// Compile compiles criteria. It returns an error for an invalid selector.
func Compile(c Criteria) (*Criterion, error) {
	out := &Criterion{exact: c.Exact, rules: compileRules(c.Rules), exclude: compileRules(c.Exclude)}
	var err error
	if out.namespaces, err = selector(c.Namespaces); err != nil {
		return nil, fmt.Errorf("namespaceSelector: %w", err)
	}
	if out.objects, err = selector(c.Objects); err != nil {
		return nil, fmt.Errorf("objectSelector: %w", err)
	}
	return out, nil
}

// selector returns nil for a selector that selects everything.
func selector(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return nil, nil
	}
	out, err := metav1.LabelSelectorAsSelector(s)
	if err != nil || out.Empty() {
		return nil, err
	}
	return out, nil
}

// Unnamed returns rules that match the same requests, for objects of every name.
func Unnamed(rules []admissionv1.RuleWithOperations) []admissionv1.NamedRuleWithOperations {
	out := make([]admissionv1.NamedRuleWithOperations, len(rules))
	for i := range rules {
		out[i].RuleWithOperations = rules[i]
	}
	return out
}
