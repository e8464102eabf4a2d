package flowcontrol

import "time"

// maxRetryAfter is the maximum Retry-After in seconds.
const maxRetryAfter = 32

// rejectionBackoff computes the Retry-After of a level from its rate of rejections.
type rejectionBackoff struct {
	seconds     int       // current Retry-After; 0 stands for 1
	windowStart time.Time // zero before the first rejection
	rejections  int       // in the current window
}

// recordRejection counts a rejection. A window is as long as the current Retry-After. With more
// than three rejections per second in a window, Retry-After doubles. With fewer than one, it
// decreases.
func (r *rejectionBackoff) recordRejection(now time.Time) {
	r.seconds = max(r.seconds, 1)
	window := time.Duration(r.seconds) * time.Second
	if r.windowStart.IsZero() {
		r.windowStart = now
	}
	elapsed := now.Sub(r.windowStart)
	if elapsed >= window {
		missedWindow := elapsed >= 2*window // a whole window passed without a rejection
		switch {
		case r.rejections > 3*r.seconds && !missedWindow:
			r.seconds = min(2*r.seconds, maxRetryAfter)
		case r.rejections < r.seconds || missedWindow:
			r.seconds = max(r.seconds-int(elapsed/window), 1)
		}
		r.windowStart = now
		r.rejections = 0
	}
	r.rejections++
}

// retryAfterSeconds returns the Retry-After of the next rejection.
func (r *rejectionBackoff) retryAfterSeconds() int { return max(r.seconds, 1) }
