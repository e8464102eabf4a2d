package encodings

import (
	"sync"

	"binnacle/services/apiserver/internal/cache/memory"
)

// memoryShare is the share of encodings in the memory of all caches: three times as much as
// compressed responses or older states.
const memoryShare = 3

// Ring holds the finished encodings of all lists and evicts them by the clock algorithm: a hand
// passes over the ring and evicts the encodings that were not read since it last passed. It is safe
// for concurrent use.
type Ring struct {
	budget *memory.Budget
	share  *memory.Quota
	// retiredMark is the first encoding of lists that keep no encodings any more.
	retiredMark *encoding

	mu      sync.Mutex // after the mutex of an encoding; leaf lock
	size    int64      // memory of the encodings in bytes
	count   int
	evicted uint64
	hand    *encoding // the next candidate for eviction; nil if the ring is empty
}

// NewRing returns an empty ring that takes its memory from a budget.
func NewRing(b *memory.Budget) *Ring {
	r := &Ring{budget: b, retiredMark: &encoding{form: invalidForm}}
	r.share = b.Cache("encodings", memoryShare, r.shrink)
	return r
}

// Get returns the encoding of a list in a form. If it is absent, encode makes it, and concurrent
// callers wait for that one call. The bytes are shared and must not be changed. Errors are not
// cached. encode may request other forms of the list, as long as no two forms need each other.
func (r *Ring) Get(list *List, form ID, encode func() ([]byte, error)) ([]byte, error) {
	e := list.find(form)
	if e == nil {
		e = r.findOrInsert(list, form)
	}
	if e == nil {
		return encode() // the list is retired
	}
	if e.done.Load() {
		return e.read(), nil
	}
	b, created, err := e.encodeOnce(r, encode)
	if created {
		r.budget.EvictToFit()
	}
	return b, err
}

// HasSpareMemory reports whether a low-priority encoding may be kept without evicting others.
func (r *Ring) HasSpareMemory() bool { return r.budget.HasHeadroom() }

// Drop evicts all encodings of a list that is unlikely to be read again.
func (r *Ring) Drop(l *List) {
	if l.first.Load() == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.Retired(l) {
		r.evictAll(l)
		l.first.Store(nil)
	}
}

// Retire evicts all encodings of a list, and stops it from keeping new ones: they would keep its
// object alive.
func (r *Ring) Retire(l *List) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.Retired(l) {
		r.evictAll(l)
		l.first.Store(r.retiredMark)
	}
}

// Retired reports whether Retire was called for a list.
func (r *Ring) Retired(l *List) bool { return l.first.Load() == r.retiredMark }

// Stats returns the memory of all encodings in bytes, their number, and the number of encodings
// that were evicted to free memory.
func (r *Ring) Stats() (size int64, count int, evicted uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.size, r.count, r.evicted
}

// findOrInsert returns the encoding of a list in a form. It inserts an unfinished one if the list
// has none. It returns nil if the list is retired.
func (r *Ring) findOrInsert(l *List, form ID) *encoding {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Retired(l) {
		return nil
	}
	if e := l.find(form); e != nil {
		return e
	}
	e := &encoding{form: form, list: l}
	e.next.Store(l.first.Load())
	l.first.Store(e)
	return e
}

// insert adds a finished encoding to the ring, unless it was evicted while it was made.
func (r *Ring) insert(inserted *encoding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if inserted.evicted {
		return
	}
	if r.hand == nil {
		inserted.older = inserted
		inserted.newer = inserted
		r.hand = inserted
	} else { // behind the hand, which reaches it last
		inserted.newer = r.hand
		inserted.older = r.hand.older
		inserted.older.newer = inserted
		inserted.newer.older = inserted
	}
	r.count++
	r.addSize(inserted.size())
}

// addSize adds to the counted memory. bytes is negative for evicted encodings. The caller holds mu.
func (r *Ring) addSize(bytes int64) {
	r.size += bytes
	r.share.Add(bytes)
}

// shrink evicts encodings until the given number of bytes is free or none are left. It returns how
// many bytes it freed.
func (r *Ring) shrink(bytes int64) (freed int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for freed < bytes && r.hand != nil {
		if r.hand.used.Swap(false) {
			r.hand = r.hand.newer
			continue
		}
		victim := r.hand
		freed += victim.size()
		r.evicted++
		r.evict(victim)
		victim.list.remove(victim)
	}
	return freed
}

// evictAll evicts all encodings of a list, which the caller then replaces. The caller holds mu.
func (r *Ring) evictAll(l *List) {
	for e := l.first.Load(); e != nil; e = e.next.Load() {
		r.evict(e)
	}
}

// evict marks an encoding as evicted and removes it from the ring if it is finished. The caller
// holds mu.
func (r *Ring) evict(victim *encoding) {
	victim.evicted = true
	if victim.newer == nil {
		return
	}
	r.count--
	r.addSize(-victim.size())
	if victim.newer == victim {
		r.hand = nil
	} else {
		victim.older.newer = victim.newer
		victim.newer.older = victim.older
		if r.hand == victim {
			r.hand = victim.newer
		}
	}
	victim.older = nil
	victim.newer = nil
}
