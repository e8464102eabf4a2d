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

// weighDocument is weigh for a JSON document that is processed the given number of times.
func weighDocument(ctx context.Context, doc []byte, times int) error {
	return weigh(ctx, times*request.WeightOfJSON(doc))
}
