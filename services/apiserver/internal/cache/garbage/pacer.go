package garbage

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

// Bounds of the heap growth between two collections: half of the live heap, within bounds. Most of
// the heap is encoded objects without pointers, so collecting more often than usual costs little.
// With many objects, a percentage alone would leave hundreds of megabytes of garbage.
const (
	leastGrowth = 32 << 20
	mostGrowth  = 80 << 20
	// startGrowth is the maximum growth until the first check.
	startGrowth = 120 << 20
	// hurriedGrowth is the maximum growth during large work.
	hurriedGrowth = 128 << 20
	// leastPercent bounds the collection frequency of a large heap, mostPercent the growth of a
	// small one.
	leastPercent, mostPercent = 10, 400
)

// During a collection, requests compete with it for processors. While large bodies are processed,
// which produces much short-lived garbage, more garbage may accumulate: the allowed growth doubles
// with each collection within hurried of the previous one. It halves with a collection after calm,
// or without such work.
const (
	hurried   = 100 * time.Millisecond
	calm      = time.Second
	mostHurry = 3 // doublings
)

// hurry is the recent collection frequency, in doublings of the allowed heap growth.
type hurry int

// after returns the hurry after another collection, d after the previous one. large means that
// there was large work in between.
func (h hurry) after(d time.Duration, large bool) hurry {
	switch {
	case d > calm || !large:
		return max(h-1, 0)
	case d < hurried:
		return min(h+1, mostHurry)
	}
	return h
}

// growth returns the allowed heap growth in percent for a live heap in bytes. After a start it
// allows as much growth as live bytes, because most new objects are then retained.
func growth(live uint64, h hurry, start bool) int {
	live = max(live, 1)
	room := min(max(live/2, leastGrowth), mostGrowth)
	if start {
		room = max(room, min(live, startGrowth))
	}
	if h > 0 {
		room = max(room, min(room<<h, hurriedGrowth))
	}
	return int(min(max(room*100/live, leastPercent), mostPercent<<h))
}

// Memory is returned to the system after a busy period, once the process is idle.
const (
	// lookEvery is the interval of the checks. calmBytes is the maximum allocation between two
	// checks of an idle process.
	lookEvery = 5 * time.Second
	calmBytes = 4 << 20
	// leastBack bytes, and that part of the live heap, justify a collection.
	leastBack = 16 << 20
	partBack  = 16
)

// Pacer paces the garbage collections of the process. There is at most one. Its zero value is
// ready.
type Pacer struct {
	large atomic.Int64 // number of large items in progress
	was   atomic.Bool  // whether there was one since the last collection
}

// Large changes the number of large items in progress.
func (p *Pacer) Large(more int) {
	p.large.Add(int64(more))
	p.was.Store(true)
}

// Pace sets the time of the next collection after each collection, until ctx ends. The environment
// variable GOGC sets it permanently; if it is set, do not call Pace.
func (p *Pacer) Pace(ctx context.Context) error {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	return p.pace(ctx, look.C)
}

func (p *Pacer) pace(ctx context.Context, look <-chan time.Time) error {
	collected := make(chan struct{}, 1)
	notify(ctx, collected)
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	set := 0
	var left leftover
	var file program
	began, wasIdle := true, false // until and at the last check
	var rush hurry
	last := time.Now()
	for {
		metrics.Read(sample)
		if sample[0].Value.Kind() == metrics.KindUint64 {
			// Setting it stops the world briefly.
			if p := growth(sample[0].Value.Uint64(), rush, began); p*10 < set*9 || p*9 > set*10 {
				debug.SetGCPercent(p)
				set = p
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-collected:
			now := time.Now()
			rush, last = rush.after(now.Sub(last), p.was.Swap(false) || p.large.Load() > 0), now
		case <-look:
			if time.Since(last) > calm {
				rush = 0
			}
			idle, worthless := left.look()
			if worthless {
				debug.FreeOSMemory()
			}
			if began || idle && !wasIdle {
				file.unmap()
			}
			began, wasIdle = false, idle
		}
	}
}

// leftover records the allocation at the last check.
type leftover struct {
	allocated uint64
	samples   []metrics.Sample
}

// look reports whether the process is idle, since it has allocated little since the last check, and
// whether much of its memory is then garbage or free.
func (l *leftover) look() (idle, worthless bool) {
	if l.samples == nil {
		l.samples = []metrics.Sample{
			{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"},
			{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
		}
	}
	metrics.Read(l.samples)
	var v [4]uint64
	for i, s := range l.samples {
		if s.Value.Kind() != metrics.KindUint64 {
			return false, false
		}
		v[i] = s.Value.Uint64()
	}
	since := v[0] - l.allocated
	l.allocated = v[0]
	return since <= calmBytes, giveBack(since, v[1], v[2]+v[3])
}

// giveBack decides by the bytes allocated since, the live bytes and the size of the heap.
func giveBack(since, live, has uint64) bool {
	return since <= calmBytes && has >= live+max(leastBack, live/partBack)
}

// notify sends a value after each collection, until ctx ends.
func notify(ctx context.Context, to chan<- struct{}) {
	type garbage struct{ _ [16]byte } // cleanups of pointers and of tiny objects are not individual
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
