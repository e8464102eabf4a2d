package admission

import (
	"cmp"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
)

// ObjectName is the name that refusals show: while there is none, what it will
// begin with, or "Unknown".
func (r *Request) ObjectName() string {
	if r.Name != "" {
		return r.Name
	}
	if r.Object != nil {
		if m, err := meta.Accessor(r.Object); err == nil && m.GetName()+m.GetGenerateName() != "" {
			return cmp.Or(m.GetName(), m.GetGenerateName())
		}
	}
	return "Unknown"
}

// Forbidden is a plugin's refusal. An error that says so already is passed on.
func (r *Request) Forbidden(err error) error {
	if apierrors.IsForbidden(err) {
		return err
	}
	return apierrors.NewForbidden(r.Resource.GroupResource(), r.ObjectName(), err)
}

// Forbiddenf is Forbidden with a text.
func (r *Request) Forbiddenf(format string, args ...any) error {
	return r.Forbidden(fmt.Errorf(format, args...))
}

// IsObject tells whether the request is for an object itself, not for one of its
// sub-resources.
func (r *Request) IsObject(group, resource string) bool {
	return r.Subresource == "" && r.Is(group, resource)
}
