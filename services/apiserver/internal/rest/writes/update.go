package writes

import (
	"context"
	"fmt"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/registry"
)

// Update replaces the stored object, or the part of it that a subresource may change, with
// Request.Object. For some kinds it creates a missing object.
func (w *Writer) Update(ctx context.Context, r *Request) (Result, error) {
	if r.Sub != nil && r.Sub.Scale != nil {
		return w.updateScale(ctx, r)
	}
	if err := r.namespaceFits(r.Object); err != nil {
		return Result{}, err
	}
	if err := r.nameFits(r.Object); err != nil {
		return Result{}, err
	}
	wanted := func() registry.Object {
		obj := r.Object.DeepCopyObject().(registry.Object)
		obj.SetNamespace(r.place())
		return obj
	}
	compute := func(l *live) (outcome, error) {
		return w.change(ctx, r, l, wanted(), false)
	}
	var create func() (Result, error)
	if r.Kind.Update.Creates && r.Sub == nil {
		create = func() (Result, error) { return w.createUpdated(ctx, r, wanted()) }
	}
	return w.modifyOrCreate(ctx, r, compute, create)
}

// Modify updates the object by applying change to a copy of the live object. A retry applies it to
// the newer state. An error of change ends the write.
func (w *Writer) Modify(ctx context.Context, r *Request, change func(registry.Object) error) (Result, error) {
	return w.modify(ctx, r, admission.Update, func(l *live) (outcome, error) {
		obj := l.obj.DeepCopyObject().(registry.Object)
		if err := change(obj); err != nil {
			return outcome{}, err
		}
		return w.change(ctx, r, l, obj, false)
	})
}

// Alter applies alter to a copy of the live object and stores it without the rules of its kind. It
// is for operations that have been admitted and keep the rules themselves.
func (w *Writer) Alter(ctx context.Context, r *Request, alter func(registry.Object) error) (Result, error) {
	return w.modify(ctx, r, "", func(l *live) (outcome, error) {
		obj := l.obj.DeepCopyObject().(registry.Object)
		if err := alter(obj); err != nil {
			return outcome{}, err
		}
		value, err := r.Kind.Coder.EncodeFor(ctx, obj)
		if err != nil {
			return outcome{}, fmt.Errorf("encode: %w", err)
		}
		return outcome{value: value, obj: obj, keep: r.DryRun}, nil
	})
}

// createUpdated creates the object of an update that does not exist yet.
func (w *Writer) createUpdated(ctx context.Context, r *Request, obj registry.Object) (Result, error) {
	if err := w.mayCreate(ctx, r); err != nil {
		return Result{}, err
	}
	return w.create(ctx, r, obj, creation{absent: true})
}
