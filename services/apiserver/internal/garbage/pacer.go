package garbage

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// How much the heap may grow from one collection of garbage to the next: a third of what
// lives, within bounds. Most of it is encoded objects, in which there is nothing to
// trace, so that collecting oftener than usual costs little; with many of them a share
// would leave hundreds of megabytes to garbage. With 96 MiB at
// most a start with 100,000 pods cost a fifth more CPU.
const (
	leastGrowth = 16 << 20
	mostGrowth  = 192 << 20
	// leastPercent bounds how often a large heap is collected.
	leastPercent = 10
)

// growth is how far the heap may grow, in percent, when so many bytes live.
func growth(live uint64) int {
	live = max(live, 1)
	room := min(max(live/3, leastGrowth), mostGrowth)
	// A heap that hardly begins may double many times.
	return int(min(max(room*100/live, leastPercent), 400))
}

// Pace sets after each collection when the next one is due, until ctx ends. The
// environment variable GOGC says the same for good: who sets it does not call Pace.
func Pace(ctx context.Context) error {
	collected := make(chan struct{}, 1)
	notify(ctx, collected)
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	set := 0
	for {
		metrics.Read(sample)
		if sample[0].Value.Kind() == metrics.KindUint64 {
			// Setting it stops the world for a moment.
			if p := growth(sample[0].Value.Uint64()); p*10 < set*9 || p*9 > set*10 {
				debug.SetGCPercent(p)
				set = p
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-collected:
		}
	}
}

// notify sends after each collection, until ctx ends.
func notify(ctx context.Context, to chan<- struct{}) {
	type garbage struct{ _ [16]byte } // pointers' and small objects' ends are not told one by one
	runtime.AddCleanup(new(garbage), func(to chan<- struct{}) {
		if ctx.Err() != nil {
			return
		}
		select {
		case to <- struct{}{}:
		default: // one is waiting to be read
		}
		notify(ctx, to)
	}, to)
}
