package flowcontrol

import "time"

// maxRetryAfter is how many seconds clients are asked to stay away at most.
const maxRetryAfter = 32

// refusals of a level say when it is worth trying again: the more are refused, the
// later.
type refusals struct {
	seconds int       // 0 stands for 1
	since   time.Time // of the window that is counted
	count   int
}

// add one. Each window is as long as clients are asked to stay away: when more
// than three for each of its seconds are refused, that doubles; when fewer than
// one, it gets shorter again.
func (r *refusals) add(now time.Time) {
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

func (r *refusals) after() int { return max(r.seconds, 1) }
