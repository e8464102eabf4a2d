package writes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/authz"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage"
)

// Delete deletes an object, or starts its deletion, according to Request.Options, which are
// DeleteOptions (specification: "Object deletion"). An object that is deleted gracefully is first
// written with its deletion timestamp and then removed, even with a grace period of 0, so that
// watchers see it terminate.
func (w *Writer) Delete(ctx context.Context, req *Request) (Result, error) {
	deleteOptions, ok := req.Options.(*metav1.DeleteOptions)
	if !ok {
		return Result{}, fmt.Errorf("a deletion with %T", req.Options)
	}
	operation := admission.Delete
	if req.Admitted {
		operation = ""
	}

	// Both are of the last attempt, which is the one that succeeds.
	var obj registry.Object
	var action deletion
	tracing.Event(ctx, eventDelete)
	result, err := w.modifyLive(ctx, req, operation, func(live *liveObject) (outcome, error) {
		obj = live.obj.DeepCopyObject().(registry.Object)
		if err := req.CheckPreconditions(live.obj); err != nil {
			return outcome{}, err
		}
		action = w.beginDeletion(req, obj, deleteOptions)
		if action.pending && req.BeforeDelete == nil {
			return outcome{unchanged: true}, nil
		}
		if err := w.admitDeletion(ctx, req, live.obj); err != nil {
			return outcome{}, err
		}
		if req.BeforeDelete != nil {
			req.BeforeDelete(obj)
			action.write = true
		}
		if !action.write { // the response shows the last stored state
			return outcome{value: live.stored.Value, remove: action.remove, unchanged: req.DryRun || !action.remove}, nil
		}
		value, err := req.Resource.Coder.EncodeFor(ctx, obj)
		if err != nil {
			return outcome{}, fmt.Errorf("encode: %w", err)
		}
		return outcome{value: value, obj: obj, unchanged: req.DryRun}, nil
	})
	if err != nil {
		return Result{}, err
	}

	// The object has been stored with its deletion timestamp. Remove it now.
	if action.write && action.remove && !req.DryRun {
		if result, err = w.removeMarked(ctx, req, obj, result); err != nil {
			return Result{}, err
		}
	}
	tracing.Event(ctx, eventDeleted)
	result.Object = obj
	result.Deleted = action.remove
	return result, nil
}

// removeMarked removes an object that was stored with its deletion timestamp. Its deletion has been
// admitted and cannot be undone, so a concurrent change of the object does not matter. Neither does
// a concurrent removal.
func (w *Writer) removeMarked(ctx context.Context, r *Request, obj registry.Object, marked Result) (Result, error) {
	live := &liveObject{
		stored:    storage.KeyValue{Key: r.objectKey(), Value: marked.Stored, ModRevision: marked.Revision},
		obj:       obj,
		confirmed: true,
	}
	res, err := w.modifyFrom(ctx, r, "", live, func(live *liveObject) (outcome, error) {
		if live.obj.GetUID() != obj.GetUID() {
			return outcome{}, storage.ErrNotFound
		}
		return outcome{value: live.stored.Value, remove: true}, nil
	})
	if apierrors.IsNotFound(err) {
		return marked, nil
	}
	return res, err
}

// admitDeletion runs admission on the deletion of the live object, unless an operation included it.
func (w *Writer) admitDeletion(ctx context.Context, r *Request, live registry.Object) error {
	if r.Admitted {
		return nil
	}
	attrs := r.Admission(admission.Delete, nil, live)
	if options, ok := r.Options.(*metav1.DeleteOptions); ok && !r.Collection {
		attrs.Options = r.effectiveOptions(live, options)
	}
	if err := w.Admission.Mutate(ctx, attrs); err != nil {
		return err
	}
	return w.Admission.Validate(ctx, attrs)
}

// effectiveOptions returns the options that admission sees of the deletion of a single object: with
// the grace period that the object gets, and with its uid if the deletion takes several steps.
func (r *Request) effectiveOptions(live registry.Object, deleteOptions *metav1.DeleteOptions) *metav1.DeleteOptions {
	deleteOptions = deleteOptions.DeepCopy()
	terminating := live.GetDeletionTimestamp() != nil
	// As in Kubernetes, the first step of a deletion in several steps has the options of the
	// client.
	isFirstStep := (r.Resource.Delete.TwoPhase || r.Resource.Delete.MarkDeletion != nil) && !terminating
	if deleteOptions.GracePeriodSeconds != nil && !isFirstStep {
		*deleteOptions.GracePeriodSeconds = nonNegativeGrace(*deleteOptions.GracePeriodSeconds)
	}
	if gracePeriod := r.Resource.Delete.GracePeriod; gracePeriod != nil && !terminating {
		deleteOptions.GracePeriodSeconds = ptr.To(gracePeriod(live, deleteOptions.GracePeriodSeconds))
	}
	takesSteps := r.Resource.Delete.RemovalBlocked != nil || r.Resource.Delete.MarkDeletion != nil
	if !takesSteps {
		return deleteOptions
	}
	if deleteOptions.Preconditions == nil {
		deleteOptions.Preconditions = &metav1.Preconditions{}
	}
	if deleteOptions.Preconditions.UID == nil {
		deleteOptions.Preconditions.UID = ptr.To(live.GetUID())
	}
	return deleteOptions
}

// CheckPreconditions checks the preconditions of a deletion against the object.
func (r *Request) CheckPreconditions(obj registry.Object) error {
	options, ok := r.Options.(*metav1.DeleteOptions)
	if !ok || options.Preconditions == nil {
		return nil
	}
	preconditions := options.Preconditions
	if r.Resource.Delete.MarkDeletion != nil || r.Resource.Delete.TwoPhase {
		return r.checkPreconditionsOfSteps(preconditions, obj)
	}
	kind := schema.GroupResource{Group: r.Resource.GroupKind().Group, Resource: r.Resource.Kind.Kind}
	if preconditions.UID != nil && *preconditions.UID != obj.GetUID() {
		return apierrors.NewConflict(kind, r.Name, fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). "+
			"The object might have been deleted and then recreated",
			*preconditions.UID, obj.GetUID()))
	}
	if preconditions.ResourceVersion != nil && *preconditions.ResourceVersion != obj.GetResourceVersion() {
		return apierrors.NewConflict(kind, r.Name, fmt.Errorf("the ResourceVersion in the precondition (%s) "+
			"does not match the ResourceVersion in record (%s). The object might have been modified",
			*preconditions.ResourceVersion, obj.GetResourceVersion()))
	}
	return nil
}

// checkPreconditionsOfSteps checks preconditions with the messages that Kubernetes has for kinds
// with Delete.MarkDeletion or Delete.TwoPhase.
func (r *Request) checkPreconditionsOfSteps(precondition *metav1.Preconditions, obj registry.Object) error {
	conflict := func(field string, expected, actual any) error {
		//nolint:staticcheck // the wording is the API's
		cause := fmt.Errorf("Precondition failed: %s in precondition: %v, %s in object meta: %v", field, expected, field, actual)
		return apierrors.NewConflict(r.Resource.GroupResource(), r.Name, cause)
	}
	if precondition.UID != nil && *precondition.UID != obj.GetUID() {
		return conflict("UID", *precondition.UID, obj.GetUID())
	}
	if precondition.ResourceVersion != nil && *precondition.ResourceVersion != obj.GetResourceVersion() {
		return conflict("ResourceVersion", *precondition.ResourceVersion, obj.GetResourceVersion())
	}
	return nil
}

// deletion holds the actions of a DELETE on an object.
type deletion struct {
	// write stores the changed object, remove removes it. With both, write is first.
	write, remove bool
	// pending means that the object is already terminating and ends soon enough. Nothing is done, and
	// admission is not called.
	pending bool
}

// beginDeletion changes an object according to the options of a DELETE.
func (w *Writer) beginDeletion(req *Request, obj registry.Object, deleteOptions *metav1.DeleteOptions) deletion {
	now := w.Now()
	if req.Resource.Delete.MarkDeletion != nil && obj.GetDeletionTimestamp() == nil {
		at := metav1.NewTime(now.UTC().Truncate(time.Second))
		obj.SetDeletionTimestamp(&at)
		req.Resource.Delete.MarkDeletion(obj, at)
		return deletion{write: true}
	}

	// 1. Determine whether the rules of the kind hold the object.
	terminating := obj.GetDeletionTimestamp() != nil
	blocked := req.Resource.Delete.RemovalBlocked != nil && req.Resource.Delete.RemovalBlocked(obj)
	if req.Resource.Delete.TwoPhase && terminating && blocked {
		return deletion{pending: true}
	}
	held := blocked || req.Resource.Delete.TwoPhase && !terminating

	// 2. Apply the grace period.
	marked, graceOver := false, true
	if req.Resource.Delete.GracePeriod != nil {
		marked, graceOver = req.markGraceful(obj, deleteOptions, now)
		if !marked && !graceOver {
			return deletion{pending: true}
		}
	}

	// 3. Set the finalizers of the garbage collector.
	changed := marked
	if !w.NoGarbageCollector {
		if finalizers := req.deletionFinalizers(obj, deleteOptions); !slices.Equal(finalizers, obj.GetFinalizers()) {
			obj.SetFinalizers(finalizers)
			changed = true
		}
	}

	// 4. Remove the object, or mark it until nothing holds it.
	switch {
	case len(obj.GetFinalizers()) == 0 && !held:
		// A change of the finalizers alone is not written before the object is removed.
		return deletion{write: marked, remove: graceOver}
	case !terminating && !marked:
		req.markDeletion(obj, 0, held, now)
		changed = true
	}
	return deletion{write: changed}
}

// markGraceful sets the deletion timestamp and grace period of an object of a kind with graceful
// deletion. marked reports whether they changed. graceOver reports whether the grace period allows
// removing the object now.
func (r *Request) markGraceful(obj registry.Object, options *metav1.DeleteOptions, now time.Time) (marked, graceOver bool) {
	requested := options.GracePeriodSeconds
	if requested != nil {
		requested = ptr.To(nonNegativeGrace(*requested))
	}
	if obj.GetDeletionTimestamp() == nil {
		grace := r.Resource.Delete.GracePeriod(obj, requested)
		r.markDeletion(obj, grace, false, now)
		return true, grace == 0
	}
	currentGrace := ptr.Deref(obj.GetDeletionGracePeriodSeconds(), 0)
	switch {
	case currentGrace == 0:
		return false, true
	case requested == nil, *requested >= nonNegativeGrace(currentGrace):
		return false, false
	}
	shortenGracePeriod(obj, *requested, currentGrace, now)
	return true, *requested == 0
}

// nonNegativeGrace returns a grace period in seconds, where a negative one counts as 1.
func nonNegativeGrace(seconds int64) int64 {
	if seconds < 0 {
		return 1
	}
	return seconds
}

// shortenGracePeriod sets an earlier end of a terminating object. The end does not move into the
// past: if the new grace period is already over, at most 1 second remains for a graceful
// termination.
func shortenGracePeriod(obj registry.Object, grace, currentGrace int64, now time.Time) {
	at := obj.GetDeletionTimestamp().Add(time.Duration(grace-currentGrace) * time.Second)
	if at.Before(now) {
		at = now.UTC().Truncate(time.Second)
		grace = min(grace, 1)
	}
	obj.SetDeletionTimestamp(&metav1.Time{Time: at})
	obj.SetDeletionGracePeriodSeconds(&grace)
}

// markDeletion sets the deletion timestamp and, unless held, the grace period.
func (r *Request) markDeletion(obj registry.Object, grace int64, held bool, now time.Time) {
	at := metav1.NewTime(now.UTC().Add(time.Duration(grace) * time.Second).Truncate(time.Second))
	obj.SetDeletionTimestamp(&at)
	if !held {
		obj.SetDeletionGracePeriodSeconds(&grace)
	}
	// Objects that are held by other means than finalizers keep their generation.
	if g := obj.GetGeneration(); g > 0 && !held {
		obj.SetGeneration(g + 1)
	}
	if r.Resource.Delete.BeginDeletion != nil {
		r.Resource.Delete.BeginDeletion(obj)
	}
}

// The option of an unsafe deletion, and the verb for which the user needs permission.
const (
	unsafeOption = "ignoreStoreReadErrorWithClusterBreakingPotential"
	unsafeVerb   = "unsafe-delete-ignore-read-errors"
)

// DeleteCorrupt removes an object that cannot be read. It skips admission, which would have no
// object to check, and ignores finalizers. It requires a separate permission. It does not remove
// a readable object.
func (w *Writer) DeleteCorrupt(ctx context.Context, req *Request) error {
	if err := w.authorizeUnsafeDelete(ctx, req); err != nil {
		return err
	}
	for range maxAttempts {
		_, err := w.readLive(ctx, req, true)
		var corruption *storage.CorruptObjectError
		if err == nil || errors.Is(err, storage.ErrNotFound) {
			return notCorrupt(req)
		}
		if !errors.As(err, &corruption) {
			return req.objectRef().Translate(err)
		}
		// A request that ended before the object was decrypted does not prove that the object is
		// corrupt.
		if err := cmp.Or(status.DecryptionRejected(corruption), ctx.Err()); err != nil {
			return err
		}
		resume := request.Suspend(ctx)
		revision, err := w.Store.Delete(ctx, req.objectKey(), corruption.Revision)
		resume()
		var conflict *storage.ConflictError
		switch {
		case err == nil:
			w.Logger.Warn("an object that cannot be read was deleted", "key", req.objectKey(), "user", req.User.Name, "error", corruption.Err)
			w.reportWritten(req, revision)
			return nil
		case !errors.As(err, &conflict): // otherwise a concurrent write: try again
			return req.objectRef().Translate(err)
		}
	}
	return apierrors.NewConflict(req.Resource.GroupResource(), req.Name, status.ErrModified)
}

// notCorrupt returns the error of an unsafe deletion of a readable or absent object.
func notCorrupt(r *Request) error {
	gr := r.Resource.GroupResource()
	return status.Invalid(schema.GroupKind{Group: gr.Group, Kind: gr.Resource}, r.Name, field.ErrorList{
		field.Invalid(field.NewPath(unsafeOption), true,
			"is exclusively used to delete corrupt object(s), try again by removing this option"),
	})
}

// authorizeUnsafeDelete returns an error unless the user has the permission of unsafe deletions.
func (w *Writer) authorizeUnsafeDelete(ctx context.Context, req *Request) error {
	resource := req.Resource
	decision, reason, err := w.Authorizer.Authorize(ctx, &authz.Attributes{
		User:         req.User,
		Verb:         unsafeVerb,
		Resource:     true,
		Group:        resource.Group,
		Version:      resource.Version,
		ResourceName: resource.Resource,
		Namespace:    req.Namespace,
		Name:         req.Name,
	})
	switch {
	case decision == authz.Allow:
		return nil
	case err != nil:
		w.Logger.Warn("authorization failed", "resource", resource.Resource, "namespace", req.Namespace, "name", req.Name, "error", err)
		return apierrors.NewInternalError(fmt.Errorf("error occurred while checking permission for %q, please try again: %w",
			unsafeVerb, err))
	}
	return apierrors.NewForbidden(resource.GroupResource(), req.Name, fmt.Errorf("not permitted to do %q, reason: %s", unsafeVerb, reason))
}

// IgnoresReadErrors reports whether the options of a deletion allow removing a corrupt object.
func IgnoresReadErrors(options *metav1.DeleteOptions) bool {
	return options.IgnoreStoreReadErrorWithClusterBreakingPotential != nil && *options.IgnoreStoreReadErrorWithClusterBreakingPotential
}

// RejectForCollections returns the error for options that only a deletion of a single object may
// have.
func RejectForCollections() *field.Error {
	return field.Invalid(
		field.NewPath(unsafeOption),
		true,
		"is not allowed with DELETECOLLECTION, try again after removing the option",
	)
}
