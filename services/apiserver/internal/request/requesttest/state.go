package requesttest

import (
	"context"

	"binnacle/services/apiserver/internal/request"
)

// WithInfo returns a context of a request that info describes. info is a *requestinfo.Info.
func WithInfo(ctx context.Context, info any) context.Context {
	ctx, s := request.Derive(ctx)
	s.Info = info
	return ctx
}

// WithUser returns a context of a request of a user.
func WithUser(ctx context.Context, u *request.User) context.Context {
	ctx, s := request.Derive(ctx)
	s.User = u
	return ctx
}

// WithWarnings returns a context that collects warnings.
func WithWarnings(ctx context.Context) (context.Context, *request.Warnings) {
	ctx, s := request.Derive(ctx)
	s.Warnings = &request.Warnings{}
	return ctx, s.Warnings
}

// WithStartup returns a context of a request that readiness waits for.
func WithStartup(ctx context.Context) context.Context {
	ctx, s := request.Derive(ctx)
	s.Startup = true
	return ctx
}
