package request

import (
	"sync/atomic"
	"time"
)

// Waits records how long a request waited for limits and for admission webhooks, and the steps that
// it reached. Its methods accept a nil receiver, which records nothing.
type Waits struct {
	nanoseconds atomic.Int64
	steps       steps
}

// Add adds a wait.
func (w *Waits) Add(d time.Duration) {
	if w != nil {
		w.nanoseconds.Add(int64(d))
	}
}

// Sum returns the total of all waits.
func (w *Waits) Sum() time.Duration {
	if w == nil {
		return 0
	}
	return time.Duration(w.nanoseconds.Load())
}
