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

// allocatorOf returns the Allocator of the request's kind. Most kinds have none.
func (w *Writer) allocatorOf(r *Request) Allocator { return w.Allocators[r.Kind.GVR().GroupResource()] }

// complete runs Allocator.Complete, if the kind has an Allocator.
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

// allocate runs Allocator.Allocate, if the kind has an Allocator.
func (w *Writer) allocate(ctx context.Context, r *Request, obj, old registry.Object) (admission.Claim, error) {
	z := w.allocatorOf(r)
	if z == nil || r.Sub != nil {
		return noClaim{}, nil
	}
	return z.Allocate(ctx, obj, old, r.DryRun)
}

// Allocator allocates cluster-wide unique values to the objects of one kind.
type Allocator interface {
	// Complete fills in values that follow from the object, the live object (nil at creation) and
	// the cluster's configuration. It allocates nothing.
	Complete(obj, old registry.Object) field.ErrorList
	// Allocate allocates the values that the object lacks; a dry run allocates nothing. The caller
	// must settle the Claim.
	Allocate(ctx context.Context, obj, old registry.Object, dryRun bool) (admission.Claim, error)
	// Release frees the values of an object that has been removed.
	Release(ctx context.Context, obj registry.Object)
}

// settleClaim keeps or drops a claim according to the result of the write. If the result is
// unknown, nothing is dropped: the repair loop finds unused values.
func settleClaim(ctx context.Context, claim admission.Claim, err error) {
	var exists *storage.ExistsError
	var conflict *storage.ConflictError
	switch {
	case err == nil:
		claim.Keep(ctx)
	case errors.As(err, &exists), errors.As(err, &conflict), errors.Is(err, storage.ErrNotFound), errors.Is(err, storage.ErrTooLarge):
		claim.Drop(ctx)
	}
}

// noClaim is the claim of kinds without an Allocator.
type noClaim struct{}

func (noClaim) Keep(context.Context) {}

func (noClaim) Drop(context.Context) {}
