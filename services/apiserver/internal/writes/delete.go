package writes

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/registry"
)

// Delete deletes an object, or begins to, as Request.Options, which are
// DeleteOptions, say (specification: "Object deletion").
func (w *Writer) Delete(ctx context.Context, r *Request) (Result, error) {
	o, ok := r.Options.(*metav1.DeleteOptions)
	if !ok {
		return Result{}, fmt.Errorf("a deletion with %T", r.Options)
	}
	var obj registry.Object
	var removed bool
	op := admission.Delete
	if r.Admitted {
		op = ""
	}
	res, err := w.modify(ctx, r, op, func(l *live) (outcome, error) {
		obj = l.obj.DeepCopyObject().(registry.Object)
		if err := r.Preconditions(l.obj); err != nil {
			return outcome{}, err
		}
		if err := w.admitDeletion(ctx, r, l.obj); err != nil {
			return outcome{}, err
		}
		if r.Mark != nil {
			r.Mark(obj)
		}
		stay, changed := w.beginDeletion(r, obj, o)
		removed = !stay
		if stay && !changed && r.Mark == nil {
			return outcome{keep: true}, nil
		}
		value, err := r.Kind.Coder.EncodeFor(ctx, obj)
		if err != nil {
			return outcome{}, fmt.Errorf("encode: %w", err)
		}
		return outcome{value: value, remove: removed, keep: r.DryRun}, nil
	})
	if err != nil {
		return Result{}, err
	}
	res.Object, res.Removed = obj, removed
	if removed {
		// What was deleted is shown as it last was.
		if res.Stored, err = r.Kind.Coder.EncodeFor(ctx, obj); err != nil {
			return Result{}, fmt.Errorf("encode: %w", err)
		}
		res.Revision, _ = strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	}
	return res, nil
}

func (w *Writer) admitDeletion(ctx context.Context, r *Request, live registry.Object) error {
	if r.Admitted {
		return nil
	}
	ask := r.Admission(admission.Delete, nil, live)
	if o, ok := r.Options.(*metav1.DeleteOptions); ok && r.Kind.Delete.Held != nil && (o.Preconditions == nil || o.Preconditions.UID == nil) {
		// What is deleted in steps is that very object, and told to be.
		uid := live.GetUID()
		o = o.DeepCopy()
		if o.Preconditions == nil {
			o.Preconditions = &metav1.Preconditions{}
		}
		o.Preconditions.UID = &uid
		ask.Options = o
	}
	if err := w.Admission.Mutate(ctx, ask); err != nil {
		return err
	}
	return w.Admission.Validate(ctx, ask)
}

// Preconditions compares what the options of a deletion say of the object with
// what it is.
func (r *Request) Preconditions(obj registry.Object) error {
	o, ok := r.Options.(*metav1.DeleteOptions)
	if !ok || o.Preconditions == nil {
		return nil
	}
	p := o.Preconditions
	if r.Kind.Delete.Mark != nil {
		return r.preconditionsOfMark(p, obj)
	}
	kind := schema.GroupResource{Group: r.Kind.GroupKind().Group, Resource: r.Kind.GroupKind().Kind}
	if p.UID != nil && *p.UID != obj.GetUID() {
		return apierrors.NewConflict(kind, r.Name, fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, obj.GetUID()))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != obj.GetResourceVersion() {
		return apierrors.NewConflict(kind, r.Name, fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, obj.GetResourceVersion()))
	}
	return nil
}

// preconditionsOfMark are preconditions in the words in which Kubernetes tells
// them of such kinds.
func (r *Request) preconditionsOfMark(p *metav1.Preconditions, obj registry.Object) error {
	failed := func(what string, want, is any) error {
		return apierrors.NewConflict(r.Kind.GroupResource(), r.Name, fmt.Errorf("Precondition failed: %s in precondition: %v, %s in object meta: %v", what, want, what, is)) //nolint:staticcheck // the wording is the API's
	}
	if p.UID != nil && *p.UID != obj.GetUID() {
		return failed("UID", *p.UID, obj.GetUID())
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != obj.GetResourceVersion() {
		return failed("ResourceVersion", *p.ResourceVersion, obj.GetResourceVersion())
	}
	return nil
}

// beginDeletion marks an object that must stay for now; changed tells whether
// the mark differs from what it had.
func (w *Writer) beginDeletion(r *Request, obj registry.Object, o *metav1.DeleteOptions) (stay, changed bool) {
	now := w.Now()
	if r.Kind.Delete.Mark != nil && obj.GetDeletionTimestamp() == nil {
		at := metav1.NewTime(now.UTC().Truncate(time.Second))
		obj.SetDeletionTimestamp(&at)
		r.Kind.Delete.Mark(obj, at)
		return true, true
	}
	finalizers := obj.GetFinalizers()
	if !w.NoGarbageCollector {
		finalizers = r.deletionFinalizers(obj, o)
	}
	if !slices.Equal(finalizers, obj.GetFinalizers()) {
		obj.SetFinalizers(finalizers)
		changed = true
	}
	held := r.Kind.Delete.Held != nil && r.Kind.Delete.Held(obj)
	grace := int64(0)
	if r.Kind.Delete.GracePeriod != nil {
		grace = r.Kind.Delete.GracePeriod(obj, o.GracePeriodSeconds)
	}
	pending := obj.GetDeletionTimestamp() != nil
	switch {
	case len(finalizers) > 0 || held:
	case grace > 0:
	default:
		// What is deleted gracefully is shown with its end, also when that is now.
		switch {
		case r.Kind.Delete.GracePeriod == nil:
		case pending:
			endSooner(obj, 0)
		default:
			r.mark(obj, 0, false, now)
		}
		return false, true
	}
	if pending {
		return r.shorten(obj, o, grace, held, changed)
	}
	r.mark(obj, grace, held, now)
	return true, true
}

// mark says on an object when it will be gone.
func (r *Request) mark(obj registry.Object, grace int64, held bool, now time.Time) {
	at := metav1.NewTime(now.UTC().Add(time.Duration(grace) * time.Second).Truncate(time.Second))
	obj.SetDeletionTimestamp(&at)
	if !held {
		obj.SetDeletionGracePeriodSeconds(&grace)
	}
	// What something beside finalizers holds has its own way of ending.
	if g := obj.GetGeneration(); g > 0 && !held {
		obj.SetGeneration(g + 1)
	}
	if r.Kind.Delete.Begin != nil {
		r.Kind.Delete.Begin(obj)
	}
}

// shorten handles another deletion of an object whose deletion has begun: the
// grace period can become shorter, never longer.
func (r *Request) shorten(obj registry.Object, o *metav1.DeleteOptions, grace int64, held, changed bool) (stay, _ bool) {
	if r.Kind.Delete.GracePeriod == nil || held || o.GracePeriodSeconds == nil {
		return true, changed
	}
	return true, endSooner(obj, grace) || changed
}

// endSooner moves the end of an object whose deletion has begun, unless it comes
// sooner already.
func endSooner(obj registry.Object, grace int64) bool {
	had := obj.GetDeletionGracePeriodSeconds()
	if had == nil || grace >= *had {
		return false
	}
	at := metav1.NewTime(obj.GetDeletionTimestamp().Add(time.Duration(grace-*had) * time.Second))
	obj.SetDeletionTimestamp(&at)
	obj.SetDeletionGracePeriodSeconds(&grace)
	return true
}

// deletionFinalizers adds and removes the garbage collector's finalizers as the
// propagation policy wants it.
func (r *Request) deletionFinalizers(obj registry.Object, o *metav1.DeleteOptions) []string {
	has := func(f string) bool { return slices.Contains(obj.GetFinalizers(), f) }
	var orphan, foreground bool
	switch {
	case o.OrphanDependents != nil: //nolint:staticcheck // clients still send it
		orphan = *o.OrphanDependents //nolint:staticcheck // clients still send it
	case o.PropagationPolicy != nil:
		orphan = *o.PropagationPolicy == metav1.DeletePropagationOrphan
		foreground = *o.PropagationPolicy == metav1.DeletePropagationForeground
	default:
		orphan = has(metav1.FinalizerOrphanDependents) || r.Kind.Delete.Orphan && obj.GetDeletionTimestamp() == nil
		foreground = has(metav1.FinalizerDeleteDependents)
	}
	var out []string
	for _, f := range obj.GetFinalizers() {
		if f != metav1.FinalizerOrphanDependents && f != metav1.FinalizerDeleteDependents {
			out = append(out, f)
		}
	}
	if orphan {
		out = append(out, metav1.FinalizerOrphanDependents)
	}
	if foreground {
		out = append(out, metav1.FinalizerDeleteDependents)
	}
	return out
}
