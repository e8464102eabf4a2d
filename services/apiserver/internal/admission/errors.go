package admission

import (
	"cmp"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
)

// ObjectName returns the name for error messages: the name, the prefix of a name to generate, or
// "Unknown".
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

// Forbidden returns the rejection of a plugin. It returns a Forbidden error unchanged.
func (r *Request) Forbidden(err error) error {
	if apierrors.IsForbidden(err) {
		return err
	}
	return apierrors.NewForbidden(r.Resource.GroupResource(), r.ObjectName(), err)
}

// Forbiddenf is Forbidden with a formatted text.
func (r *Request) Forbiddenf(format string, args ...any) error {
	return r.Forbidden(fmt.Errorf(format, args...))
}

// IsObject reports whether the request is for an object itself and not for a subresource.
func (r *Request) IsObject(group, resource string) bool {
	return r.Subresource == "" && r.Is(group, resource)
}
