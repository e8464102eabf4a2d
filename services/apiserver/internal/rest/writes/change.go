package writes

import (
	"bytes"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/apply"
	"binnacle/services/apiserver/internal/registry/meta"
	"binnacle/services/apiserver/internal/status"
)

// computeChange computes the object that an update or patch stores. obj is the object that the
// client wants, l the live state. ownershipRecorded reports whether the managedFields of obj already
// include the change. An error leaves no open reservation.
func (w *Writer) computeChange(
	ctx context.Context,
	req *Request,
	live *liveObject,
	obj registry.Object,
	ownershipRecorded bool,
) (outcome, error) {
	old := live.obj

	// 1. Check the uid. In an update it is a precondition. In a patch it is a change of the object,
	// which validation rejects.
	if uid := obj.GetUID(); req.Patch == nil && uid != "" && uid != old.GetUID() {
		return outcome{}, req.uidConflict(uid, old.GetUID())
	}

	// 2. Set defaults and record the field ownership.
	if req.Resource.Default != nil {
		req.Resource.Default(obj)
	}
	if !ownershipRecorded {
		if err := w.recordOwnership(ctx, req, old, obj); err != nil {
			return outcome{}, err
		}
	}

	// 3. Run mutating admission, unless it has seen the object already (a scale). It sees the metadata
	// that the client sent.
	var typeErr error
	if req.Sub == nil { // a write of the status restores the type
		typeErr = req.checkType(obj) // before webhooks: their response always has the type of the resource
	}
	attrs := req.admission
	if attrs == nil {
		showUnsetTime(obj)
		attrs = req.Admission(admission.Update, obj, old)
		if err := w.mutateUpdate(ctx, req, obj, attrs); err != nil {
			return outcome{}, err
		}
	}

	// 4. Restore what this write must not change.
	if err := req.checkResourceVersion(obj, old); err != nil {
		return outcome{}, err
	}
	keepServerMetadata(obj, old)
	recorded := apply.ManagedFieldsOf(obj)
	if err := w.completeObject(req, obj, old); err != nil {
		return outcome{}, err
	}
	req.prepareUpdate(obj, old)
	recorded.ApplyTo(obj)
	req.restoreTimes(obj, old, &w.Metrics)
	if typeErr != nil {
		return outcome{}, typeErr
	}

	// 5. Allocate values, validate, and run validating admission.
	reservation, err := w.allocateValues(ctx, req, obj, old)
	if err != nil {
		return outcome{}, err
	}
	text, err := req.Resource.Coder.ServedJSON(obj)
	if err != nil {
		reservation.Rollback(ctx)
		return outcome{}, fmt.Errorf("encode: %w", err)
	}
	if errs := w.validateUpdate(ctx, req, live, obj, text); len(errs) > 0 {
		reservation.Rollback(ctx)
		return outcome{}, status.Invalid(req.Resource.GroupKind(), obj.GetName(), errs)
	}
	req.addUpdateWarnings(ctx, obj, old)
	reservation, err = w.admitComplete(ctx, attrs, reservation)
	if err != nil {
		return outcome{}, err
	}

	// 6. Encode the object and decide what happens to the stored one.
	value, err := req.encodeObject(ctx, obj, text)
	if err != nil {
		reservation.Rollback(ctx)
		return outcome{}, err
	}
	switch {
	case req.DryRun:
		return outcome{value: value, obj: obj, reservation: reservation, unchanged: true}, nil
	case req.canBeRemoved(obj):
		return outcome{value: value, obj: obj, reservation: reservation, remove: true}, nil
	case bytes.Equal(value, live.stored.Value) && !live.stored.Stale():
		return outcome{reservation: reservation, unchanged: true}, nil
	}
	return outcome{value: value, obj: obj, reservation: reservation}, nil
}

// showUnsetTime sets a creationTimestamp that the client left out to null, as encoding a built-in
// kind does. Mutating admission sees it.
func showUnsetTime(obj registry.Object) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return
	}
	if m, ok := u.Object["metadata"].(map[string]any); ok && m["creationTimestamp"] == nil {
		m["creationTimestamp"] = nil
	}
}

// mutateUpdate runs mutating admission on a change.
func (w *Writer) mutateUpdate(ctx context.Context, r *Request, obj registry.Object, attrs *admission.Request) error {
	if err := w.runMutation(ctx, r, obj, attrs); err != nil {
		return err
	}
	if err := r.checkNamespace(obj); err != nil {
		return err
	}
	obj.SetNamespace(r.objectNamespace()) // a plugin may leave it out, as clients may
	return nil
}

// checkResourceVersion checks the resourceVersion that the client sent or mutating admission set.
func (r *Request) checkResourceVersion(obj, old registry.Object) error {
	resourceVersion := obj.GetResourceVersion()
	switch {
	case resourceVersion == "" || resourceVersion == "0":
		if r.Resource.Update.RequireResourceVersion {
			// Kubernetes reports the resource here, and the version as a number.
			resource := schema.GroupKind{Group: r.Resource.GroupResource().Group, Kind: r.Resource.Resource}
			return status.Invalid(resource, r.Name, field.ErrorList{
				field.Invalid(field.NewPath("metadata", "resourceVersion"), uint64(0), "must be specified for an update"),
			})
		}
	case resourceVersion != old.GetResourceVersion():
		if err := r.checkVersion(obj); err != nil {
			return err
		}
		return apierrors.NewConflict(r.Resource.GroupResource(), r.Name, status.ErrModified)
	}
	return nil
}

// keepServerMetadata copies the metadata that the server owns from the live object.
func keepServerMetadata(obj, old registry.Object) {
	meta.KeepServerFields(obj, old)
	obj.SetResourceVersion(old.GetResourceVersion())
	obj.SetGeneration(old.GetGeneration())
}

// prepareUpdate resets the fields that a write to this path must not change.
func (r *Request) prepareUpdate(obj, old registry.Object) {
	switch {
	case r.Sub == nil:
		if r.Resource.HasStatus() {
			r.Resource.Parts.CopyStatus(obj, old)
		}
		if r.Resource.Update.Prepare != nil {
			r.Resource.Update.Prepare(obj, old)
		}
	case r.Sub.Prepare != nil:
		r.Sub.Prepare(obj, old)
	case r.Sub.Name == "status":
		r.Resource.Parts.CopySpec(obj, old)
	}
	if r.Resource.Update.Generation && r.Resource.Parts.SpecChanged(obj, old) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
}

// validateUpdate validates obj as the successor of l. text is the result of KindCodec.ServedJSON for
// obj.
func (w *Writer) validateUpdate(
	ctx context.Context,
	req *Request,
	live *liveObject,
	obj registry.Object,
	text []byte,
) field.ErrorList {
	old := live.obj
	order, rules := req.Resource.Update.Order, req.Resource.Update.Validate
	if req.Sub != nil {
		order = req.Sub.Order
		rules = req.Sub.ValidateUpdate
	}
	errs := meta.ValidateUpdate(req.Resource.Kind, order, obj, old, func(metadataErrors field.ErrorList) field.ErrorList {
		errs := req.validateDocument(ctx, metadataErrors, obj, text, live.text)
		if rules != nil {
			errs = append(errs, rules(obj, old)...)
		}
		return errs
	})
	if req.Sub == nil {
		errs = w.addDeclarativeErrors(req.Resource.Kind, obj, errs)
	}
	return errs
}

// canBeRemoved reports whether an object whose deletion has started can be removed (specification:
// "Object deletion").
func (r *Request) canBeRemoved(obj registry.Object) bool {
	if obj.GetDeletionTimestamp() == nil || len(obj.GetFinalizers()) > 0 {
		return false
	}
	if g := obj.GetDeletionGracePeriodSeconds(); g != nil && *g > 0 {
		return false
	}
	return r.Resource.Delete.RemovalBlocked == nil || !r.Resource.Delete.RemovalBlocked(obj)
}
