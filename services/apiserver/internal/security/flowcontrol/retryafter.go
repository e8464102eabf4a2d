package flowcontrol

import "time"

// maxRetryAfter is the maximum Retry-After in seconds.
const maxRetryAfter = 32

// retryAfter computes Retry-After of a level from its rate of rejections.
type retryAfter struct {
	seconds int       // 0 stands for 1
	since   time.Time // start of the current window
	count   int
}

// recordRejection counts a rejection. A window is as long as the current Retry-After. With more than three
// rejections per second in a window, Retry-After doubles. With fewer than one, it decreases.
func (r *retryAfter) recordRejection(now time.Time) {
	r.seconds = max(r.seconds, 1)
	if window := time.Duration(r.seconds) * time.Second; r.since.IsZero() {
		r.since = now
	} else if past := now.Sub(r.since); past >= window {
		switch n := r.count; {
		case n > 3*r.seconds && past < 2*window:
			r.seconds = min(2*r.seconds, maxRetryAfter)
		case n < r.seconds || past >= 2*window:
			r.seconds = max(r.seconds-int(past/window), 1)
		}
		r.since, r.count = now, 0
	}
	r.count++
}

func (r *retryAfter) delay() int { return max(r.seconds, 1) }
