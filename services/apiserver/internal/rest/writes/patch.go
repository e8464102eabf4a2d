package writes

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/status"
)

// Patch applies Request.Patch to the stored object, or to the part of it that a subresource may
// change. An apply creates a missing object.
func (w *Writer) Patch(ctx context.Context, r *Request) (Result, error) {
	if r.Sub != nil && r.Sub.Scale != nil {
		return w.patchScale(ctx, r)
	}
	compute := func(l *live) (outcome, error) {
		tracing.Event(ctx, eventPatch)
		obj, err := w.patched(ctx, r, l.obj, l.unconverted(r))
		if err != nil {
			return outcome{}, err
		}
		tracing.Event(ctx, eventAdmit)
		return w.change(ctx, r, l, obj, r.Patch.Applies())
	}
	var create func() (Result, error)
	if r.Patch.Applies() && r.Sub == nil {
		create = func() (Result, error) { return w.createApplied(ctx, r) }
	}
	res, err := w.modifyOrCreate(ctx, r, compute, create)
	if err == nil {
		tracing.Event(ctx, eventStored)
	}
	return res, err
}

// createApplied creates the object of an apply patch that does not exist yet.
func (w *Writer) createApplied(ctx context.Context, r *Request) (Result, error) {
	obj, err := w.patchedObject(ctx, r, r.Kind.New().(registry.Object), false)
	if err != nil {
		return Result{}, err
	}
	// A patch with a uid is for an existing object. It may lack the name.
	if uid := obj.GetUID(); uid != "" {
		return Result{}, apierrors.NewConflict(r.Kind.GroupResource(), r.Name, fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
	}
	if err := r.identityFits(obj); err != nil {
		return Result{}, err
	}
	if err := w.mayCreate(ctx, r); err != nil {
		return Result{}, err
	}
	return w.create(ctx, r, obj, creation{owned: true, absent: true})
}

// patched applies a patch to the live object. inForm reports whether the object has the defaults of
// its version.
func (w *Writer) patched(ctx context.Context, r *Request, old registry.Object, inForm bool) (registry.Object, error) {
	obj, err := w.patchedObject(ctx, r, old, inForm)
	if err != nil {
		return nil, err
	}
	return obj, r.identityFits(obj)
}

// identityFits checks the namespace and the name of a patched object, and sets its namespace.
func (r *Request) identityFits(obj registry.Object) error {
	if err := r.namespaceFits(obj); err != nil {
		return err
	}
	obj.SetNamespace(r.place())
	return r.nameFits(obj)
}

func (w *Writer) patchedObject(ctx context.Context, r *Request, old registry.Object, inForm bool) (registry.Object, error) {
	p := r.Patch
	if r.Kind.Document == nil {
		if err := p.checkMade(w.Codec, r.Kind.GVK(), r.Name); err != nil {
			return nil, err
		}
	}
	if p.Applies() {
		if err := r.weighMade(ctx, p.raw); err != nil {
			return nil, err
		}
		obj, err := r.owner().Apply(ctx, old, p.tree, r.Manager, r.Force)
		if err != nil && r.Kind.Document != nil && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
			return nil, status.Failed(err.Error())
		}
		if err != nil {
			return nil, err
		}
		return obj, r.reportApply(ctx)
	}
	if p.typ == types.MergePatchType && len(p.unknown) == 0 && r.Kind.Document == nil {
		if obj := old.DeepCopyObject().(registry.Object); mergeInto(obj, p.raw) {
			return obj, nil
		}
	}
	if inForm {
		if obj, ok := p.mergeMarks(old); ok {
			return obj, nil
		}
	}
	obj, err := w.patchValue(ctx, r, patchTarget{
		gvk: r.Kind.GVK(), now: old, shape: r.Kind.New,
		json: func() ([]byte, error) { return r.Kind.Coder.EncodeObject(old) },
	})
	if err != nil {
		return nil, err
	}
	return obj.(registry.Object), nil
}
