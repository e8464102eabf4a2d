package traced

import (
	"context"
	"time"

	"binnacle/libs/tracing"
)

// Value describes the object that a write stores.
type Value struct {
	// Type and Resource name its kind as Kubernetes does in traces: *core.Node, nodes.
	Type, Resource string
	// Begin and End are when the object was encoded; zero if unknown.
	Begin, End time.Time
}

type valueKey struct{}

// WithValue returns a context that describes the value written with it.
func WithValue(ctx context.Context, v Value) context.Context {
	return context.WithValue(ctx, valueKey{}, v)
}

func valueOf(ctx context.Context) (v Value) {
	if tracing.Recording(ctx) {
		v, _ = ctx.Value(valueKey{}).(Value)
	}
	return v
}
