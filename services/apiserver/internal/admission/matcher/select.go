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

// exempt holds the resources that configure admission. They are exempt so that an invalid webhook
// or policy can be repaired.
var exempt = map[string]bool{
	"mutatingwebhookconfigurations": true, "validatingwebhookconfigurations": true,
	"validatingadmissionpolicies": true, "validatingadmissionpolicybindings": true,
	"mutatingadmissionpolicies": true, "mutatingadmissionpolicybindings": true,
}

// Exempt reports whether a request bypasses all webhooks and policies.
func Exempt(r *admission.Request) bool {
	return r.Resource.Group == "admissionregistration.k8s.io" && exempt[r.Resource.Resource]
}

// Namespace returns the namespace of a request. The namespace of a Namespace object is itself.
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

// Selects reports whether the candidate selects a request, and as which resource and kind. obj is
// the current object, in any version. An error is a Status.
func (c *Candidate[T]) Selects(ctx context.Context, r *admission.Request, obj runtime.Object, namespaces Namespaces) (MatchedKind, bool, error) {
	as, ok := firstWithName(c.matches, r.Name)
	if !ok {
		return as, false, nil
	}
	if _, excluded := firstWithName(c.exclude, r.Name); excluded {
		return as, false, nil
	}
	if s := c.criterion.objects; s != nil && !selectsObject(s, obj) && !selectsObject(s, r.OldObject) {
		return as, false, nil
	}
	if c.criterion.namespaces == nil {
		return as, true, nil
	}
	ok, err := selectsNamespace(ctx, c.criterion.namespaces, r, obj, namespaces)
	return as, ok, err
}

// Match reports whether a request matches, and as which resource and kind. A criterion without
// rules matches every operation on every resource. An error is a Status.
func (c *Criterion) Match(ctx context.Context, r *admission.Request, familyOf Family, namespaces Namespaces) (MatchedKind, bool, error) {
	key := keyOf(r)
	var family []*apiset.Resource
	if !c.exact {
		family = familyOf(r.Resource)
	}
	found := Candidate[struct{}]{criterion: c, exclude: c.matching(c.exclude, key, r.Kind, family)}
	if len(c.rules) == 0 {
		found.matches = []match{{&rule{}, MatchedKind{r.Resource.GVR(), r.Kind}}}
	} else {
		found.matches = c.matching(c.rules, key, r.Kind, family)
	}
	return found.Selects(ctx, r, r.Object, namespaces)
}

func firstWithName(matches []match, name string) (MatchedKind, bool) {
	for i := range matches {
		if matches[i].rule.matchesName(name) {
			return matches[i].as, true
		}
	}
	return MatchedKind{}, false
}

func selectsObject(s labels.Selector, obj runtime.Object) bool {
	if obj == nil {
		return false
	}
	m, err := meta.Accessor(obj)
	return err == nil && s.Matches(labels.Set(m.GetLabels()))
}

// selectsNamespace reports whether a selector matches the namespace of a request. For a namespace
// it matches the new object. It returns true for cluster-scoped objects.
func selectsNamespace(ctx context.Context, s labels.Selector, r *admission.Request, obj runtime.Object, namespaces Namespaces) (bool, error) {
	if r.IsResource("", "namespaces") && r.Subresource == "" && obj != nil {
		return selectsObject(s, obj), nil
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
	return s.Matches(labels.Set(namespaceLabels)), nil
}
