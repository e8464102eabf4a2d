package admission

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/request"
)

// Weigh waits until work on so many bytes may begin that the request did not bring: what
// plugins add to an object, or hold it against. What is not large need not wait.
func Weigh(ctx context.Context, size int) error {
	if size >= request.LargeBody && !request.Weigh(ctx, min(size, request.MaxBody)) {
		return apierrors.NewTooManyRequests("The object becomes large, and others are worked on", 1)
	}
	return nil
}
