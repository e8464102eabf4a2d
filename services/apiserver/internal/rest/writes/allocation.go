package writes

import (
	"context"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/status"
)

// allocatorOf returns the Allocator of the request's kind. Most kinds have none.
func (w *Writer) allocatorOf(r *Request) Allocator {
	return w.Allocators[r.Resource.GVR().GroupResource()]
}

// complete runs Allocator.Complete, if the kind has an Allocator.
func (w *Writer) complete(r *Request, obj, old registry.Object) error {
	allocator := w.allocatorOf(r)
	if allocator == nil || r.Sub != nil {
		return nil
	}
	if errs := allocator.Complete(obj, old); len(errs) > 0 {
		return status.Invalid(r.Resource.GroupKind(), obj.GetName(), errs)
	}
	return nil
}

// allocate runs Allocator.Allocate, if the kind has an Allocator. As in Kubernetes, it precedes
// validation, so that its error comes first and validation sees the allocated values.
func (w *Writer) allocate(ctx context.Context, r *Request, obj, old registry.Object) (admission.Claim, error) {
	allocator := w.allocatorOf(r)
	if allocator == nil || r.Sub != nil {
		return noClaim{}, nil
	}
	return allocator.Allocate(ctx, obj, old, r.DryRun)
}
