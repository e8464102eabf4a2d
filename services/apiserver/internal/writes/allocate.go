package writes

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage"
)

// Allocator gives the objects of one kind what is unique in the cluster.
type Allocator interface {
	// Complete fills in what follows from the object, the live one (nil at
	// creation) and the cluster's configuration. It takes nothing.
	Complete(obj, old registry.Object) field.ErrorList
	// Allocate takes what the object lacks, or pretends to. The Claim has to be
	// settled.
	Allocate(ctx context.Context, obj, old registry.Object, dryRun bool) (Claim, error)
	// Release gives back what an object held that has been removed.
	Release(ctx context.Context, obj registry.Object)
}

// Claim is what an object takes by being written, and gives up by it.
type Claim = admission.Claim

// allocatorOf the kind at hand; mostly there is none.
func (w *Writer) allocatorOf(r *Request) Allocator { return w.Allocators[r.Kind.GVR().GroupResource()] }

// complete runs the first step of a kind that has an Allocator.
func (w *Writer) complete(r *Request, obj, old registry.Object) error {
	z := w.allocatorOf(r)
	if z == nil || r.Sub != nil {
		return nil
	}
	if errs := z.Complete(obj, old); len(errs) > 0 {
		return status.Invalid(r.Kind.GroupKind(), obj.GetName(), errs)
	}
	return nil
}

// allocate runs the second step.
func (w *Writer) allocate(ctx context.Context, r *Request, obj, old registry.Object) (Claim, error) {
	z := w.allocatorOf(r)
	if z == nil || r.Sub != nil {
		return noClaim{}, nil
	}
	return z.Allocate(ctx, obj, old, r.DryRun)
}

// settleClaim ends a claim by what came of the write. When nobody knows, nothing is
// given back: the repair finds what is not in use.
func settleClaim(ctx context.Context, claim Claim, err error) {
	var exists *storage.ExistsError
	var conflict *storage.ConflictError
	switch {
	case err == nil:
		claim.Keep(ctx)
	case errors.As(err, &exists), errors.As(err, &conflict), errors.Is(err, storage.ErrNotFound), errors.Is(err, storage.ErrTooLarge):
		claim.Drop(ctx)
	}
}

// noClaim is that of kinds which take nothing.
type noClaim struct{}

func (noClaim) Keep(context.Context) {}
func (noClaim) Drop(context.Context) {}

// drop gives back what an outcome has taken that is not written.
func (o *outcome) drop(ctx context.Context) {
	if o.claim != nil {
		o.claim.Drop(ctx)
	}
}
