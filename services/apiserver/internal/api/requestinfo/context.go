package requestinfo

import (
	"context"

	"binnacle/services/apiserver/internal/request"
)

// FromContext returns the Info of the request. It is nil before Resolve.
func FromContext(ctx context.Context) *Info { i, _ := request.FromContext(ctx).Info.(*Info); return i }

// LongRunning reports whether the request of a context has no deadline. It is false outside of
// requests.
func LongRunning(ctx context.Context) bool { i := FromContext(ctx); return i != nil && i.LongRunning() }
