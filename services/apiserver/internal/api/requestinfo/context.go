package requestinfo

import (
	"context"

	"binnacle/services/apiserver/internal/request"
)

// WithState attaches the state of a request; see request.WithState.
func WithState(ctx context.Context, i *Info) context.Context { return request.WithState(ctx, i) }

// With attaches another Info to a context that derives from that of a request.
func With(ctx context.Context, i *Info) context.Context { return request.WithInfo(ctx, i) }

// From returns the Info of the request. It is nil before Resolve.
func From(ctx context.Context) *Info { i, _ := request.Info(ctx).(*Info); return i }

// LongRunning reports whether the request of a context has no deadline. It is false outside of
// requests.
func LongRunning(ctx context.Context) bool { i := From(ctx); return i != nil && i.LongRunning() }
