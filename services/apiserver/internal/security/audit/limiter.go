package audit

import (
	"context"
	"time"
)

// Limiter limits concurrent work on large objects.
type Limiter interface {
	Acquire(ctx context.Context) error
	Release()
}

const (
	// largeObject is the size in bytes from which work on objects and events needs a permit.
	largeObject = 64 << 10
	// maxPermitWait is the maximum wait for a permit. After it the work runs without one, because the event
	// must be recorded.
	maxPermitWait = 10 * time.Second
)

// Limited calls work, which processes size bytes. If size is large, it waits for a permit of l first. A nil
// Limiter means no limit.
func Limited(t Limiter, size int, work func()) {
	if t == nil || size < largeObject {
		work()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxPermitWait)
	defer cancel()
	if t.Acquire(ctx) == nil {
		defer t.Release()
	}
	work()
}
