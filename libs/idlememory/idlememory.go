// Package idlememory returns memory to the system when a process is idle. The runtime alone keeps as
// much free memory as its next collection may need. Services run Release as a background task.
package idlememory

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// checkInterval is the time between two checks whether the process is idle.
	checkInterval = 5 * time.Second
	// idleBytes is how many bytes an idle process allocates at most between two checks.
	idleBytes = 4 << 20
	// A release needs at least a third of the live heap, but no more than minLarge or a sixteenth,
	// whichever is more. It needs at least minSmall, so that an idle process seldom collects.
	minSmall = 1 << 20
	minLarge = 16 << 20
)

// Release returns memory to the system after a start or a busy period, once the process is idle. It
// returns nil when ctx ends.
func Release(ctx context.Context) error {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	return releaseAt(ctx, tick.C)
}

// releaseAt returns free memory to the operating system at ticks at which the process
// allocates little, until ctx ends.
func releaseAt(ctx context.Context, tick <-chan time.Time) error {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	last := uint64(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		}
		metrics.Read(samples)
		allocated := samples[0].Value.Uint64()
		live := samples[1].Value.Uint64()
		held := samples[2].Value.Uint64() + samples[3].Value.Uint64()
		if shouldRelease(allocated-last, live, held) {
			debug.FreeOSMemory()
		}
		last = allocated
	}
}

// shouldRelease reports whether a process is idle and holds enough memory that it does not need.
// The arguments are the bytes allocated since the last check, the live bytes, and the bytes of the
// heap.
func shouldRelease(allocated, live, held uint64) bool {
	wanted := max(minSmall, min(live/3, minLarge), live/16)
	return allocated <= idleBytes && held >= live+wanted
}
