package writes

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/request"
)

// weigh waits until work on size bytes may start.
func weigh(ctx context.Context, size int) error {
	if !request.Weigh(ctx, min(size, request.MaxBody)) {
		return apierrors.NewTooManyRequests("The object is large, and others are worked on", 1)
	}
	return nil
}

// patchedCost returns the cost in bytes of decoding and defaulting an object.
func (r *Request) patchedCost(doc []byte, cbor bool) int {
	size := request.WeightOfJSON(doc)
	if d := r.Kind.Document; d != nil && d.Weight != nil {
		size = max(size, d.Weight(doc, cbor))
	}
	if request.Compiled(r.Kind.Group) {
		size *= request.CostlyKind
	}
	return size
}
