package request

import (
	"sync/atomic"
	"time"
)

// WaitTimes records how long a request waited for limits and for admission webhooks, and the steps
// that it reached. Its methods accept a nil receiver, which records nothing.
type WaitTimes struct {
	nanoseconds atomic.Int64
	steps       stepLog
}

// Add adds a wait.
func (w *WaitTimes) Add(d time.Duration) {
	if w != nil {
		w.nanoseconds.Add(int64(d))
	}
}

// Sum returns the total of all waits.
func (w *WaitTimes) Sum() time.Duration {
	if w == nil {
		return 0
	}
	return time.Duration(w.nanoseconds.Load())
}
