package beat

import (
	"sync"
	"time"
)

const (
	// interval is how often there is a beat: rarely enough to cost next to nothing, and often
	// enough that some of them in a row do not show.
	interval = 800 * time.Microsecond
	// fewProcessors are those of which one that is taken shows.
	fewProcessors = 4
)

// Beat is one of a process, which Start makes. Nil does nothing.
type Beat struct {
	mu    sync.Mutex // a leaf
	large int        // what is worked on
	threads
}

// Large tells that so many more large things are worked on, or fewer.
func (b *Beat) Large(more int) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.large > 0
	b.large += more
	if now := b.large > 0; now != before {
		b.set(now)
	}
}

// Stop ends the threads. Nothing is told to the Beat any more.
func (b *Beat) Stop() {
	if b != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.stop()
	}
}
