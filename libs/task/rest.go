package task

import (
	"context"
	"time"
)

const (
	// rests is how many times as long as work took who did it rests.
	rests = 4
	// shortest is how long a rest is at least; waiting for less costs more than it gives.
	shortest = time.Millisecond
	// longest is how long it is at most: work may have waited for others.
	longest = 250 * time.Millisecond
)

// Rest is for work that each change of many things asks for, and that looks at all of them: it waits
// four times as long as the work has taken, which began at a time, a quarter of a second at most, or
// until ctx ends. What changes meanwhile is looked at together.
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
