package beat

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// interval is how often there is a beat: rarely enough to cost next to nothing, and often
	// enough that some of them in a row do not show.
	interval = 800 * time.Microsecond
	// fewProcessors are those of which one that is taken shows.
	fewProcessors = 4
)

// spell is for how long there are beats after work at least, and twice that at most.
const spell = 50 * time.Millisecond

// Beat is one of a process, which Start makes. Nil does nothing.
type Beat struct {
	lately atomic.Bool // somebody told of work during this spell

	mu    sync.Mutex // a leaf
	large int        // what is worked on
	spell *time.Timer
	works bool // the spell lasts
	over  bool
	threads
}

// Large tells that so many more large things are worked on, or fewer.
func (b *Beat) Large(more int) {
	if b == nil {
		return
	}
	b.change(func() { b.large += more })
}

// Work tells of some work, that takes no time to speak of but comes in masses. It is cheap to
// be told often.
func (b *Beat) Work() {
	if b == nil || b.lately.Swap(true) {
		return
	}
	b.change(func() {
		switch {
		case b.works || b.over:
		case b.spell == nil:
			b.works, b.spell = true, time.AfterFunc(spell, b.pass)
		default:
			b.works = true
			b.spell.Reset(spell)
		}
	})
}

// pass begins another spell, if there was work in the one that ends.
func (b *Beat) pass() {
	b.change(func() {
		if b.works = b.lately.Swap(false) && !b.over; b.works {
			b.spell.Reset(spell)
		}
	})
}

// change does something, and starts or stops the beats where that makes a difference.
func (b *Beat) change(something func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.large > 0 || b.works
	something()
	if now := b.large > 0 || b.works; now != before {
		b.set(now)
	}
}

// Stop ends the threads.
func (b *Beat) Stop() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return
	}
	b.over = true
	if b.spell != nil {
		b.spell.Stop()
	}
	b.stop()
}
