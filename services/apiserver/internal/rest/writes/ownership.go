package writes

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/apply"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/authz"
)

// authorizeCreate authorizes the creation of an object that an update or apply does not find. The
// permission to update or patch does not include it.
func (w *Writer) authorizeCreate(ctx context.Context, req *Request) error {
	resource := req.Resource
	attrs := &authz.Attributes{
		User:         req.User,
		Verb:         "create",
		Resource:     true,
		Group:        resource.Group,
		Version:      resource.Version,
		ResourceName: resource.Resource,
		Namespace:    req.Namespace,
		Name:         req.Name,
	}
	decision, reason, err := w.Authorizer.Authorize(ctx, attrs)
	if decision == authz.Allow {
		return nil
	}
	if err != nil {
		w.Logger.Warn("authorization failed", "resource", resource.Resource, "namespace", req.Namespace, "name", req.Name, "error", err)
		return apierrors.NewInternalError(err) // not a denial
	}
	return authz.Forbidden(attrs, reason)
}

// recordOwnership records the field ownership of obj. live is the object that the request changes,
// or nil for a creation. An object that cannot be compared with live loses its managedFields, which
// would no longer be true. recordOwnership returns an error only if the request has expired, because
// then the comparison may have failed for that reason.
func (w *Writer) recordOwnership(ctx context.Context, r *Request, live, obj registry.Object) error {
	if r.Sub == nil && r.checkType(obj) != nil { // the schema does not describe its fields
		obj.SetManagedFields(nil)
		return ctx.Err()
	}
	w.recordOwnershipAs(ctx, r, r.fieldManager(), live, obj)
	return ctx.Err()
}

// RecordSentOwnership records the field ownership of the body of a creation that is never stored. As
// for a stored object, duplicate owner references are removed first.
func (w *Writer) RecordSentOwnership(ctx context.Context, r *Request, manager *apply.Manager, obj registry.Object) {
	removeDuplicateOwners(ctx, obj, duplicateOwners)
	w.recordOwnershipAs(ctx, r, manager, nil, obj)
}

// recordOwnershipAs records field ownership like recordOwnership, with the field manager m.
func (w *Writer) recordOwnershipAs(ctx context.Context, r *Request, manager *apply.Manager, live, obj registry.Object) {
	if err := manager.Update(ctx, live, obj, r.Manager); err != nil {
		w.Logger.Debug("fields are not owned", "resource", r.Resource.Resource, "namespace", obj.GetNamespace(),
			"name", obj.GetName(), "error", err)
		obj.SetManagedFields(nil)
	}
}

// runMutation runs mutating admission. It restores managedFields that admission left invalid.
func (w *Writer) runMutation(ctx context.Context, r *Request, obj registry.Object, attrs *admission.Request) error {
	before := apply.ManagedFieldsOf(obj).Clone()
	if err := w.Admission.Mutate(ctx, attrs); err != nil {
		return err
	}
	if after := apply.ManagedFieldsOf(obj); !before.EqualExceptTimes(after) {
		if err := r.fieldManager().Check(after.Entries()); err != nil {
			before.ApplyTo(obj)
			request.Warn(ctx, fmt.Sprintf(".metadata.managedFields was in an invalid state after admission; "+
				"this could be caused by an outdated mutating admission controller; please fix your requests: %v", err))
		}
	}
	removeDuplicateOwners(ctx, obj, duplicateOwnersAdmitted)
	return nil
}

// restoreTimes restores the old times in managedFields if nothing else changed. It records the
// duration of the comparison.
func (r *Request) restoreTimes(obj, old registry.Object, metrics *Metrics) {
	start := time.Now()
	before := apply.ManagedFieldsOf(old)
	switch {
	case !before.EqualExceptTimes(apply.ManagedFieldsOf(obj)):
		metrics.recordComparison(metrics.fast, start)
	case !r.fieldManager().Equal(obj, old):
		metrics.recordComparison(metrics.slow, start)
	default:
		metrics.recordComparison(metrics.equal, start)
		before.ApplyTo(obj)
	}
}
