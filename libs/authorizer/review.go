package authorizer

import (
	"errors"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// SelectorError reports that a part of a review's selectors was invalid and ignored. The decision
// then applies to a broader request.
type SelectorError struct {
	// Field is "fieldSelector" or "labelSelector".
	Field string
	// Partially means that the other parts of the selector are used.
	Partially bool
	Err       error
}

// Error returns the text for the evaluation error of a review.
func (e *SelectorError) Error() string {
	how := ""
	if e.Partially {
		how = "partially "
	}
	return fmt.Sprintf("spec.resourceAttributes.%s %signored due to parse error", e.Field, how)
}

// Unwrap returns the parse error.
func (e *SelectorError) Unwrap() error { return e.Err }

// AttributesOf returns the attributes of a review. If resource is set, nonResource is ignored. The
// errors concern only selectors and do not prevent a decision.
func AttributesOf(user *User, resource *authorizationv1.ResourceAttributes,
	nonResource *authorizationv1.NonResourceAttributes) (*Attributes, []*SelectorError) {
	if resource == nil {
		attributes := &Attributes{User: user}
		if nonResource != nil {
			attributes.Verb = nonResource.Verb
			attributes.Path = nonResource.Path
		}
		return attributes, nil
	}
	attributes := &Attributes{
		User:         user,
		Resource:     true,
		Verb:         resource.Verb,
		Namespace:    resource.Namespace,
		Group:        resource.Group,
		Version:      resource.Version,
		ResourceName: resource.Resource, Subresource: resource.Subresource, Name: resource.Name,
	}
	if attributes.Version == "" {
		attributes.Version = "*"
	}
	var problems []*SelectorError
	addProblem := func(field string, partially bool, err error) {
		if err != nil {
			problems = append(problems, &SelectorError{Field: field, Partially: partially, Err: err})
		}
	}
	if s := resource.FieldSelector; s != nil {
		var err error
		attributes.FieldSelector, err = fieldRequirements(s)
		addProblem("fieldSelector", len(attributes.FieldSelector) > 0, err)
	}
	if s := resource.LabelSelector; s != nil {
		var err error
		attributes.LabelSelector, err = labelRequirements(s)
		addProblem("labelSelector", len(attributes.LabelSelector) > 0, err)
	}
	return attributes, problems
}

// UserOf returns the user of a review.
func UserOf(spec *authorizationv1.SubjectAccessReviewSpec) *User {
	user := &User{Name: spec.User, UID: spec.UID, Groups: spec.Groups}
	for k, v := range spec.Extra {
		if user.Extra == nil {
			user.Extra = make(map[string][]string, len(spec.Extra))
		}
		user.Extra[k] = v
	}
	return user
}

// StatusOf returns the status of a review.
func StatusOf(decision Decision, reason string, err error, problems []*SelectorError) authorizationv1.SubjectAccessReviewStatus {
	var texts []string
	if err != nil {
		texts = append(texts, err.Error())
	}
	for _, p := range problems {
		texts = append(texts, p.Error())
	}
	return authorizationv1.SubjectAccessReviewStatus{
		Allowed: decision == Allow, Denied: decision == Deny, Reason: reason, EvaluationError: strings.Join(texts, "; "),
	}
}

// maxRawSelector bounds the size of a parsed selector, in bytes: a megabyte takes a third of a
// second.
const maxRawSelector = 16 << 10

var errLongSelector = fmt.Errorf("rawSelector has more than %d bytes", maxRawSelector)

// fieldRequirements returns the requirements of a field selector in a review.
func fieldRequirements(attributes *authorizationv1.FieldSelectorAttributes) (fields.Requirements, error) {
	if len(attributes.Requirements) == 0 {
		if attributes.RawSelector == "" {
			return nil, nil
		}
		if len(attributes.RawSelector) > maxRawSelector {
			return nil, errLongSelector
		}
		parsed, err := fields.ParseSelector(attributes.RawSelector)
		if err != nil {
			return nil, err
		}
		return parsed.Requirements(), nil
	}
	var out fields.Requirements
	var errs []error
	for _, requirement := range attributes.Requirements {
		op := selection.Equals
		switch requirement.Operator {
		case metav1.FieldSelectorOpIn:
		case metav1.FieldSelectorOpNotIn:
			op = selection.NotEquals
		default:
			errs = append(errs, fmt.Errorf("field selector operator %q is not supported", requirement.Operator))
			continue
		}
		if len(requirement.Values) != 1 {
			errs = append(errs, fmt.Errorf("field selector of %q needs one value, has %d", requirement.Key, len(requirement.Values)))
			continue
		}
		out = append(out, fields.Requirement{Field: requirement.Key, Operator: op, Value: requirement.Values[0]})
	}
	return out, errors.Join(errs...)
}

// labelRequirements returns the requirements of a label selector in a review.
func labelRequirements(attributes *authorizationv1.LabelSelectorAttributes) (labels.Requirements, error) {
	if len(attributes.Requirements) == 0 {
		if attributes.RawSelector == "" {
			return nil, nil
		}
		if len(attributes.RawSelector) > maxRawSelector {
			return nil, errLongSelector
		}
		parsed, err := labels.Parse(attributes.RawSelector)
		if err != nil {
			return nil, err
		}
		out, _ := parsed.Requirements()
		return out, nil
	}
	var out labels.Requirements
	var errs []error
	for _, requirement := range attributes.Requirements {
		op, ok := labelOperator(requirement.Operator)
		if !ok {
			errs = append(errs, fmt.Errorf("label selector operator %q is not known", requirement.Operator))
			continue
		}
		values := requirement.Values
		if len(values) == 0 {
			values = nil
		}
		req, err := labels.NewRequirement(requirement.Key, op, values)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, *req)
	}
	return out, errors.Join(errs...)
}

func labelOperator(op metav1.LabelSelectorOperator) (selection.Operator, bool) {
	switch op {
	case metav1.LabelSelectorOpIn:
		return selection.In, true
	case metav1.LabelSelectorOpNotIn:
		return selection.NotIn, true
	case metav1.LabelSelectorOpExists:
		return selection.Exists, true
	case metav1.LabelSelectorOpDoesNotExist:
		return selection.DoesNotExist, true
	}
	return "", false
}

// Spec returns the review for the attributes.
func (a *Attributes) Spec() authorizationv1.SubjectAccessReviewSpec {
	var spec authorizationv1.SubjectAccessReviewSpec
	if user := a.User; user != nil {
		spec.User = user.Name
		spec.UID = user.UID
		spec.Groups = user.Groups
		for k, v := range user.Extra {
			if spec.Extra == nil {
				spec.Extra = make(map[string]authorizationv1.ExtraValue, len(user.Extra))
			}
			spec.Extra[k] = v
		}
	}
	if !a.Resource {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: a.Path, Verb: a.Verb}
		return spec
	}
	spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Namespace: a.Namespace, Verb: a.Verb, Group: a.Group, Version: a.Version,
		Resource: a.ResourceName, Subresource: a.Subresource, Name: a.Name,
	}
	if reqs := reviewFields(a.FieldSelector); len(reqs) > 0 {
		spec.ResourceAttributes.FieldSelector = &authorizationv1.FieldSelectorAttributes{Requirements: reqs}
	}
	if reqs := reviewLabels(a.LabelSelector); len(reqs) > 0 {
		spec.ResourceAttributes.LabelSelector = &authorizationv1.LabelSelectorAttributes{Requirements: reqs}
	}
	return spec
}

// reviewFields returns field requirements in the form of a review. It omits requirements that a
// review cannot express, which broadens the request.
func reviewFields(requirements fields.Requirements) []metav1.FieldSelectorRequirement {
	var out []metav1.FieldSelectorRequirement
	for _, requirement := range requirements {
		var op metav1.FieldSelectorOperator
		switch requirement.Operator {
		case selection.Equals, selection.DoubleEquals, selection.In:
			op = metav1.FieldSelectorOpIn
		case selection.NotEquals, selection.NotIn:
			op = metav1.FieldSelectorOpNotIn
		default:
			continue
		}
		out = append(out, metav1.FieldSelectorRequirement{Key: requirement.Field, Operator: op, Values: []string{requirement.Value}})
	}
	return out
}

// reviewLabels returns label requirements in the form of a review. It omits the operators greater
// and less than, which a review cannot express.
func reviewLabels(requirements labels.Requirements) []metav1.LabelSelectorRequirement {
	var out []metav1.LabelSelectorRequirement
	for i := range requirements {
		requirement := &requirements[i]
		var op metav1.LabelSelectorOperator
		switch requirement.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			op = metav1.LabelSelectorOpIn
		case selection.NotEquals, selection.NotIn:
			op = metav1.LabelSelectorOpNotIn
		case selection.Exists:
			op = metav1.LabelSelectorOpExists
		case selection.DoesNotExist:
			op = metav1.LabelSelectorOpDoesNotExist
		default:
			continue
		}
		req := metav1.LabelSelectorRequirement{Key: requirement.Key(), Operator: op}
		if v := requirement.Values().List(); len(v) > 0 { // sorted: equal requests send equal reviews
			req.Values = v
		}
		out = append(out, req)
	}
	return out
}
