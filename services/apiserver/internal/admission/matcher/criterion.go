package matcher

import (
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Criteria say what requests somebody is for.
type Criteria struct {
	// Rules of which one has to match and none of Exclude may. Rules without names
	// are for objects of every name.
	Rules, Exclude []admissionv1.NamedRuleWithOperations
	// Exact takes rules by their letter: a rule for one version of a resource is
	// not for the others.
	Exact bool
	// Namespaces and Objects select; nil is everything.
	Namespaces, Objects *metav1.LabelSelector
}

// Criterion is compiled Criteria.
type Criterion struct {
	rules, exclude      []rule
	exact               bool
	namespaces, objects labels.Selector
}

// Compile reads criteria. What cannot be read is an error.
func Compile(c Criteria) (*Criterion, error) {
	out := &Criterion{exact: c.Exact, rules: rulesOf(c.Rules), exclude: rulesOf(c.Exclude)}
	var err error
	if out.namespaces, err = selector(c.Namespaces); err != nil {
		return nil, fmt.Errorf("namespaceSelector: %w", err)
	}
	if out.objects, err = selector(c.Objects); err != nil {
		return nil, fmt.Errorf("objectSelector: %w", err)
	}
	return out, nil
}

// selector is nil for one that selects everything.
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

// Unnamed are rules that are for objects of every name.
func Unnamed(rules []admissionv1.RuleWithOperations) []admissionv1.NamedRuleWithOperations {
	out := make([]admissionv1.NamedRuleWithOperations, len(rules))
	for i := range rules {
		out[i].RuleWithOperations = rules[i]
	}
	return out
}
