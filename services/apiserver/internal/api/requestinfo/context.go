package requestinfo

import (
	"context"

	"binnacle/services/apiserver/internal/request"
)

// FromContext returns the Info of the request to which ctx belongs. It returns nil before Resolve,
// and if ctx belongs to no request.
func FromContext(ctx context.Context) *Info {
	i, _ := request.FromContext(ctx).Info.(*Info)
	return i
}

// LongRunning reports whether the request to which ctx belongs is long-running (Info.LongRunning).
// It returns false if ctx belongs to no request.
func LongRunning(ctx context.Context) bool {
	i := FromContext(ctx)
	return i != nil && i.LongRunning()
}
