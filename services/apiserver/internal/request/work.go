package request

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Work is what a request occupies: its seats of priority and fairness, the memory of a large object
// and a CPU permit. Package server has the only implementation.
type Work interface {
	// Estimate waits until work on size bytes may start. It returns false if the work is not
	// admitted in time. Less than LargeBody is admitted at once, unless the request has large work
	// already.
	Estimate(ctx context.Context, size int) bool
	// Suspend releases the CPU permit while the request waits for another party, until resume is
	// called. A request that waits long releases its memory, too.
	Suspend(ctx context.Context) (resume func())
	// Started reports that a watch has sent its initial events, or that the request only waits for
	// another server. The request releases what it occupies. Further calls have no effect.
	Started()
	// ReleaseSeats releases the seats until resume is called. It returns false if too many requests
	// have released theirs; the limit is lower for a request that has not started its response. A
	// request may end without calling resume.
	ReleaseSeats(started bool) (resume func() error, ok bool)
}

// WorkFrom returns the work of the request. Without one it returns work that has no limit.
func WorkFrom(ctx context.Context) Work {
	if work := FromContext(ctx).Work; work != nil {
		return work
	}
	return noWork{}
}

// Estimate waits until the request may work on size bytes that the length of
// its body did not reveal, such as stored objects. It returns a
// TooManyRequests error if the work is not admitted in time.
func Estimate(ctx context.Context, size int) error {
	if !WorkFrom(ctx).Estimate(ctx, min(size, MaxBody)) {
		return apierrors.NewTooManyRequests("Too many large requests are in progress, please try again later", 1)
	}
	return nil
}

// Suspend calls Suspend of the request's work.
func Suspend(ctx context.Context) (resume func()) { return WorkFrom(ctx).Suspend(ctx) }

// Started calls Started of the request's work.
func Started(ctx context.Context) { WorkFrom(ctx).Started() }

// noWork is the work of a context that belongs to no request. It has no limits.
type noWork struct{}

func (noWork) Estimate(context.Context, int) bool      { return true }
func (noWork) Suspend(context.Context) (resume func()) { return func() {} }
func (noWork) Started()                                {}
func (noWork) ReleaseSeats(bool) (resume func() error, ok bool) {
	return func() error { return nil }, true
}
