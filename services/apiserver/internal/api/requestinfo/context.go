package requestinfo

import (
	"context"

	"binnacle/services/apiserver/internal/request"
)

// From returns the Info of the request. It is nil before Resolve.
func From(ctx context.Context) *Info { i, _ := request.From(ctx).Info.(*Info); return i }

// LongRunning reports whether the request of a context has no deadline. It is false outside of
// requests.
func LongRunning(ctx context.Context) bool { i := From(ctx); return i != nil && i.LongRunning() }
