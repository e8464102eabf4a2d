package garbage

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

// How much the heap may grow from one collection of garbage to the next: half of what
// lives, within bounds. Most of it is encoded objects, in which there is nothing to
// trace, so that collecting oftener than usual costs little; with many of them a share
// would leave hundreds of megabytes to garbage.
const (
	leastGrowth = 32 << 20
	mostGrowth  = 80 << 20
	// startGrowth is what it may grow by at most until the first look.
	startGrowth = 120 << 20
	// hurriedGrowth is what it may grow by in a hurry.
	hurriedGrowth = 128 << 20
	// leastPercent bounds how often a large heap is collected, mostPercent what one that
	// hardly begins grows by.
	leastPercent, mostPercent = 10, 400
)

// While garbage is collected, requests wait for processors behind those that collect. So
// while large bodies are worked on, of which much is made that is soon garbage, more of it may
// gather: what is allowed doubles with each collection that comes within hurried of the one
// before, and halves with one that comes after calm, or without any such work.
const (
	hurried   = 100 * time.Millisecond
	calm      = time.Second
	mostHurry = 3 // doublings
)

// hurry is how often collections come lately, in doublings of what the heap may grow by.
type hurry int

// after is the hurry when another collection comes, so long after the last one; large tells
// that there was large work meanwhile.
func (h hurry) after(d time.Duration, large bool) hurry {
	switch {
	case d > calm || !large:
		return max(h-1, 0)
	case d < hurried:
		return min(h+1, mostHurry)
	}
	return h
}

// growth is how far the heap may grow, in percent, when so many bytes live; after a start by
// as much, as what is made then is kept.
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

// What is left after much was done goes back to the system once little is.
const (
	// lookEvery is how often it is looked for that; calmBytes is what is allocated in the
	// meantime at most.
	lookEvery = 5 * time.Second
	calmBytes = 4 << 20
	// leastBack, and that part of what lives, is worth the collection.
	leastBack = 16 << 20
	partBack  = 16
)

// Pacer paces the collections of the process. There is one at most; its zero value is ready.
type Pacer struct {
	large atomic.Int64 // what is worked on
	was   atomic.Bool  // something large, since the last collection
}

// Large tells that so many more large things are worked on, or fewer.
func (p *Pacer) Large(more int) {
	p.large.Add(int64(more))
	p.was.Store(true)
}

// Pace sets after each collection when the next one is due, until ctx ends. The
// environment variable GOGC says the same for good: who sets it does not call Pace.
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
	began, wasIdle := true, false // until and at the last look
	var rush hurry
	last := time.Now()
	for {
		metrics.Read(sample)
		if sample[0].Value.Kind() == metrics.KindUint64 {
			// Setting it stops the world for a moment.
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

// leftover knows what has been allocated at the last look.
type leftover struct {
	allocated uint64
	samples   []metrics.Sample
}

// look tells whether the process is idle, as little was allocated since the last look, and whether much
// of what the process has is garbage or free then.
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

// giveBack decides it, of what was allocated, what lives, and what the heap takes.
func giveBack(since, live, has uint64) bool {
	return since <= calmBytes && has >= live+max(leastBack, live/partBack)
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
