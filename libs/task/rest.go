package task

import (
	"context"
	"time"
)

const (
	// rests is the ratio of the rest to the duration of the work.
	rests = 4
	// shortest is the minimum rest; shorter waits cost more than they save.
	shortest = time.Millisecond
	// longest is the maximum rest: the work may include waiting.
	longest = 250 * time.Millisecond
)

// Rest delays repeated work that processes everything after each change. It waits four times as
// long as the work has taken since begun, at most a quarter of a second, or until ctx ends. Changes
// in the meantime are processed together.
func Rest(ctx context.Context, begun time.Time) {
	d := min(rests*time.Since(begun), longest)
	if d < shortest {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
