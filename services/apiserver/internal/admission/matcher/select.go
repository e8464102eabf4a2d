package matcher

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/api/apiset"
)

// Namespaces looks up namespaces.
type Namespaces interface {
	// Labels returns the labels of a namespace. The error satisfies apierrors.IsNotFound if there
	// is none.
	Labels(ctx context.Context, name string) (map[string]string, error)
}

// exemptResources holds the resources of admissionregistration.k8s.io that configure admission.
// They are exempt so that an invalid webhook or policy can be repaired.
var exemptResources = map[string]bool{
	"mutatingwebhookconfigurations": true, "validatingwebhookconfigurations": true,
	"validatingadmissionpolicies": true, "validatingadmissionpolicybindings": true,
	"mutatingadmissionpolicies": true, "mutatingadmissionpolicybindings": true,
}

// Exempt reports whether a request bypasses all webhooks and policies.
func Exempt(r *admission.Request) bool {
	return r.Resource.Group == "admissionregistration.k8s.io" && exemptResources[r.Resource.Resource]
}

// Namespace returns the namespace of a request, or "" for cluster-scoped objects. For a Namespace
// object it returns the object's own name, as Kubernetes does.
func Namespace(r *admission.Request) string {
	if r.IsResource("", "namespaces") {
		if r.Name == "" && r.Object != nil {
			if m, err := meta.Accessor(r.Object); err == nil {
				return m.GetName()
			}
		}
		return r.Name
	}
	return r.Namespace
}

// Selects reports whether the names of the rules and the selectors match a request, and in which
// version the webhook or policy sees the request. obj is the object with all changes so far, in any
// version. An error is a Status.
func (c *Candidate[T]) Selects(
	ctx context.Context,
	req *admission.Request,
	obj runtime.Object,
	namespaces Namespaces,
) (MatchedKind, bool, error) {
	matchedKind, ok := firstMatchForName(c.matches, req.Name)
	if !ok {
		return matchedKind, false, nil
	}
	if _, excluded := firstMatchForName(c.exclude, req.Name); excluded {
		return matchedKind, false, nil
	}
	if selector := c.criteria.objects; selector != nil && !selectsObject(selector, obj) && !selectsObject(selector, req.OldObject) {
		return matchedKind, false, nil
	}
	if c.criteria.namespaces == nil {
		return matchedKind, true, nil
	}
	ok, err := selectsNamespace(ctx, c.criteria.namespaces, req, obj, namespaces)
	return matchedKind, ok, err
}

// Match reports whether a request meets the criteria, and in which version the webhook or policy
// sees the request. Criteria without rules match every operation on every resource. An error is a
// Status.
func (c *CompiledCriteria) Match(
	ctx context.Context,
	req *admission.Request,
	familyOf Family,
	namespaces Namespaces,
) (MatchedKind, bool, error) {
	key := requestKeyOf(req)
	var family []*apiset.Resource
	if !c.exact {
		family = familyOf(req.Resource)
	}
	found := Candidate[struct{}]{criteria: c, exclude: c.matchingRules(c.exclude, key, req.Kind, family)}
	if len(c.rules) == 0 {
		found.matches = []match{{rule: &rule{}, matchedKind: MatchedKind{Resource: req.Resource.GVR(), Kind: req.Kind}}}
	} else {
		found.matches = c.matchingRules(c.rules, key, req.Kind, family)
	}
	return found.Selects(ctx, req, req.Object, namespaces)
}

// firstMatchForName returns the version of the first match whose rule applies to objects of a name.
func firstMatchForName(matches []match, name string) (MatchedKind, bool) {
	for i := range matches {
		if matches[i].rule.matchesName(name) {
			return matches[i].matchedKind, true
		}
	}
	return MatchedKind{}, false
}

func selectsObject(selector labels.Selector, obj runtime.Object) bool {
	if obj == nil {
		return false
	}
	m, err := meta.Accessor(obj)
	return err == nil && selector.Matches(labels.Set(m.GetLabels()))
}

// selectsNamespace reports whether a selector matches the namespace of a request. If the request is
// for a Namespace object, the labels of the new object decide. For other cluster-scoped objects, it
// returns true.
func selectsNamespace(
	ctx context.Context,
	selector labels.Selector,
	r *admission.Request,
	obj runtime.Object,
	namespaces Namespaces,
) (bool, error) {
	if r.IsResource("", "namespaces") && r.Subresource == "" && obj != nil {
		return selectsObject(selector, obj), nil
	}
	name := Namespace(r)
	if name == "" {
		return true, nil
	}
	namespaceLabels, err := namespaces.Labels(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
		return false, err
	case err != nil:
		return false, apierrors.NewInternalError(err)
	}
	return selector.Matches(labels.Set(namespaceLabels)), nil
}
