// Package requesttest has request states for tests, and a request.Work
// whose operations call functions of the test.
package requesttest

import (
	"context"

	"binnacle/services/apiserver/internal/request"
)

// Work implements request.Work. A nil function has no limit.
type Work struct {
	OnEstimate     func(size int) bool
	OnSuspend      func() (resume func())
	OnStarted      func()
	OnReleaseSeats func(started bool) (resume func() error, ok bool)
}

// With returns a context of a request with this work.
func (w *Work) With(ctx context.Context) context.Context {
	ctx, s := request.Derive(ctx)
	s.Work = w
	return ctx
}

// Estimate implements request.Work. It admits small work without a call of OnEstimate.
func (w *Work) Estimate(_ context.Context, size int) bool {
	return size < request.LargeBody || w.OnEstimate == nil || w.OnEstimate(size)
}

// Suspend implements request.Work.
func (w *Work) Suspend(context.Context) (resume func()) {
	if w.OnSuspend == nil {
		return func() {}
	}
	return w.OnSuspend()
}

// Started implements request.Work.
func (w *Work) Started() {
	if w.OnStarted != nil {
		w.OnStarted()
	}
}

// ReleaseSeats implements request.Work.
func (w *Work) ReleaseSeats(started bool) (resume func() error, ok bool) {
	if w.OnReleaseSeats == nil {
		return func() error { return nil }, true
	}
	return w.OnReleaseSeats(started)
}
