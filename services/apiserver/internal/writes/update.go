package writes

import (
	"context"
	"fmt"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/registry"
)

// Update makes Request.Object of what is there: the object, or what a sub-resource
// over it may change. Some kinds are created where they are not there.
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

// Modify is Update to what change makes of a copy of the live object, whatever
// that is by then. An error of change ends it.
func (w *Writer) Modify(ctx context.Context, r *Request, change func(registry.Object) error) (Result, error) {
	return w.modify(ctx, r, admission.Update, func(l *live) (outcome, error) {
		obj := l.obj.DeepCopyObject().(registry.Object)
		if err := change(obj); err != nil {
			return outcome{}, err
		}
		return w.change(ctx, r, l, obj, false)
	})
}

// Alter stores what alter makes of a copy of the live object, beside the rules of
// its kind: for operations that have been admitted and know what they do.
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

// createUpdated creates what an update describes and what is not there.
func (w *Writer) createUpdated(ctx context.Context, r *Request, obj registry.Object) (Result, error) {
	if err := w.mayCreate(ctx, r); err != nil {
		return Result{}, err
	}
	return w.create(ctx, r, obj, creation{absent: true})
}
