package admission

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/request"
)

// Weigh acquires the limiter for large requests for data that the request did not contain: values
// that plugins add to an object or compare it with. It returns at once if the data is not large,
// and returns a TooManyRequests error if the limiter rejects the request.
func Weigh(ctx context.Context, size int) error {
	if size >= request.LargeBody && !request.Weigh(ctx, min(size, request.MaxBody)) {
		return apierrors.NewTooManyRequests("The object becomes large, and others are worked on", 1)
	}
	return nil
}
