package memory

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// releaseInterval is the time between two checks whether the process is idle.
	releaseInterval = 5 * time.Second
	// idleBytes is how many bytes an idle process allocates at most between two checks.
	idleBytes = 4 << 20
	// minReleased is the minimum number of bytes to return.
	minReleased = 16 << 20
	// releasedPart is the divisor of the live heap that gives the same minimum for a large heap.
	releasedPart = 16
)

// ReleaseWhenIdle returns memory to the system after a busy period, once the process is idle. The
// runtime alone keeps as much free memory as its next collection may need. It returns nil when ctx
// ends.
func ReleaseWhenIdle(ctx context.Context) error {
	tick := time.NewTicker(releaseInterval)
	defer tick.Stop()
	return releaseWhenIdle(ctx, tick.C)
}

// releaseWhenIdle returns free memory to the operating system at ticks at which the process
// allocates little, until ctx ends.
func releaseWhenIdle(ctx context.Context, tick <-chan time.Time) error {
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
	return allocated <= idleBytes && held >= live+max(minReleased, live/releasedPart)
}
