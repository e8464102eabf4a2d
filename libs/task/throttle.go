package task

import (
	"context"
	"time"
)

const (
	// restFactor is the ratio of the rest to the duration of the work.
	restFactor = 4
	// minRest is the minimum rest; shorter waits cost more than they save.
	minRest = time.Millisecond
	// maxRest is the maximum rest, because the work may include waiting.
	maxRest = 250 * time.Millisecond
)

// Throttle delays the next run of work that processes everything after each change. It waits four
// times as long as the work has taken since started, at most a quarter of a second, or until ctx
// ends. Changes in the meantime are processed together.
func Throttle(ctx context.Context, started time.Time) {
	d := min(restFactor*time.Since(started), maxRest)
	if d < minRest {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
