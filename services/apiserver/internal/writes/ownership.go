package writes

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/apply"
	"binnacle/services/apiserver/internal/authz"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
)

// mayCreate asks whether a write that finds nothing may create it: an update or
// an apply alone does not allow that.
func (w *Writer) mayCreate(ctx context.Context, r *Request) error {
	k := r.Kind
	attrs := &authz.Attributes{
		User: r.User, Verb: "create", Resource: true, Group: k.Group, Version: k.Version, ResourceName: k.Resource,
		Namespace: r.Namespace, Name: r.Name,
	}
	d, reason, err := w.Authorizer.Authorize(ctx, attrs)
	if d == authz.Allow {
		return nil
	}
	if err != nil {
		w.Logger.Warn("authorization failed", "resource", k.Resource, "namespace", r.Namespace, "name", r.Name, "error", err)
		return apierrors.NewInternalError(err) // it is not refused
	}
	return authz.Forbidden(attrs, reason)
}

// own records who owns the fields of obj, which the request makes of live; nil
// is nothing. Objects that cannot be compared lose what was recorded: it would
// no longer be true.
// The error is that of a request that has no time left: the object is comparable.
func (w *Writer) own(ctx context.Context, r *Request, live, obj registry.Object) error {
	w.Own(ctx, r, r.owner(), live, obj)
	return ctx.Err()
}

// Own is own with the owners m.
func (w *Writer) Own(ctx context.Context, r *Request, m *apply.Manager, live, obj registry.Object) {
	if err := m.Update(ctx, live, obj, r.Manager); err != nil {
		w.Logger.Debug("fields are not owned", "resource", r.Kind.Resource, "namespace", obj.GetNamespace(), "name", obj.GetName(), "error", err)
		obj.SetManagedFields(nil)
	}
}

// mutate runs mutating admission. What that makes of managedFields is taken back
// where it cannot be read.
func (w *Writer) mutate(ctx context.Context, r *Request, obj registry.Object, ask *admission.Request) error {
	before := apply.RecordedIn(obj).Clone()
	if err := w.Admission.Mutate(ctx, ask); err != nil {
		return err
	}
	if after := apply.RecordedIn(obj); !before.SameButTimes(after) {
		if err := r.owner().Check(after.Entries()); err != nil {
			before.Into(obj)
			request.Warn(ctx, fmt.Sprintf(".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests: %v", err))
		}
	}
	uniqueOwners(ctx, obj, true)
	return nil
}

// keepTimes takes back new times in managedFields where nothing else changed, and notes
// how long it took to find that out.
func (r *Request) keepTimes(obj, old registry.Object, m *Metrics) {
	begin, before := time.Now(), apply.RecordedIn(old)
	switch {
	case !before.SameButTimes(apply.RecordedIn(obj)):
		m.compared(m.fast, begin)
	case !r.owner().Equal(obj, old):
		m.compared(m.slow, begin)
	default:
		m.compared(m.equal, begin)
		before.Into(obj)
	}
}
