package encodings

import (
	"bytes"
	"sync"
	"sync/atomic"
	"unsafe"

	"binnacle/services/apiserver/internal/cache/memory"
)

// ID identifies a kind of encoding. The caller assigns the numbers.
type ID uint32

// noForm is no valid form.
const noForm = ^ID(0)

// List holds the encodings of one entry. The zero value is empty.
type List struct{ first atomic.Pointer[encoding] }

// encoding is one encoding of one entry. It is made once. Eviction removes it from its entry, and
// current readers keep it.
type encoding struct {
	form ID
	used atomic.Bool // read since the clock hand last passed
	done atomic.Bool // bytes are final
	// mu is held while the bytes are made. It comes before ring.mu.
	mu    sync.Mutex
	bytes []byte
	next  atomic.Pointer[encoding] // in the list of the entry; changed under ring.mu
	owner *List

	// Under ring.mu: the neighbours in the ring, and whether it was evicted.
	older, newer *encoding
	gone         bool
}

// encodingOverhead is the memory of an encoding without its bytes.
const encodingOverhead = int64(unsafe.Sizeof(encoding{}))

// size returns the memory of an encoding in bytes.
func (e *encoding) size() int64 { return encodingOverhead + int64(cap(e.bytes)) }

// Ring holds all finished encodings. Those that were not read since the clock hand last passed are
// evicted first.
type Ring struct {
	budget *memory.Budget
	part   *memory.Share
	// retired marks the list of an entry that keeps no encodings any more.
	retired *encoding

	mu    sync.Mutex // after Store.mu and encoding.mu; no lock is taken under it
	size  int64
	count int
	hand  *encoding // the next candidate; nil when there is none
	// For metrics.
	evicted uint64
}

// NewRing returns an empty ring within a memory budget.
func NewRing(b *memory.Budget) *Ring {
	r := &Ring{budget: b, retired: &encoding{form: noForm}}
	r.part = b.Cache("encodings", encodingsShare, r.shrink)
	return r
}

// encodingsShare is the share of encodings in the memory of all caches: three times as much as
// compressed responses or older states.
const encodingsShare = 3

// Get returns the encoding of a list in a form. If it is absent, encode makes it, and concurrent
// callers wait for that one call. The bytes are shared and must not be changed. Errors are not
// cached. encode may request other forms of the list, as long as no two forms need each other.
func (r *Ring) Get(l *List, form ID, encode func() ([]byte, error)) ([]byte, error) {
	enc := l.find(form)
	if enc == nil {
		enc = r.insert(l, form)
	}
	if enc == nil {
		return encode() // the entry was dropped from history, but a reader still holds it
	}
	if enc.done.Load() {
		return enc.read(), nil
	}
	b, made, err := enc.make(r, encode)
	if made {
		r.budget.Settle()
	}
	return b, err
}

// make makes the bytes unless another caller already did.
func (e *encoding) make(r *Ring, encode func() ([]byte, error)) (b []byte, made bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done.Load() {
		return e.read(), false, nil
	}
	b, err = encode()
	if err != nil {
		return nil, false, err
	}
	if cap(b)-len(b) > len(b)/8 {
		b = bytes.Clone(b)
	}
	e.bytes = b
	e.done.Store(true)
	r.charge(e)
	return b, true, nil
}

// Find returns the encoding in a form if it exists.
func (l *List) Find(form ID) ([]byte, bool) {
	enc := l.find(form)
	if enc == nil || !enc.done.Load() {
		return nil, false
	}
	return enc.read(), true
}

// Spare reports whether a low-priority encoding may be kept without evicting others.
func (r *Ring) Spare() bool { return r.budget.Spare() }

// Retired reports whether a list keeps no encodings any more.
func (r *Ring) Retired(l *List) bool { return l.first.Load() == r.retired }

// find returns the encoding in a form, which may not be finished, or nil.
func (l *List) find(form ID) *encoding {
	for enc := l.first.Load(); enc != nil; enc = enc.next.Load() {
		if enc.form == form {
			return enc
		}
	}
	return nil
}

// read returns the bytes and records the use.
func (e *encoding) read() []byte {
	if !e.used.Load() { // avoids writes to a cache line that is read often
		e.used.Store(true)
	}
	return e.bytes
}

// insert adds an empty encoding to the list of the entry unless the form exists. It returns nil if
// the entry keeps no encodings.
func (r *Ring) insert(l *List, form ID) *encoding {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.first.Load() == r.retired {
		return nil
	}
	if enc := l.find(form); enc != nil {
		return enc
	}
	enc := &encoding{form: form, owner: l}
	enc.next.Store(l.first.Load())
	l.first.Store(enc)
	return enc
}

// charge accounts for a finished encoding.
func (r *Ring) charge(enc *encoding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if enc.gone {
		return
	}
	if r.hand == nil {
		enc.older = enc
		enc.newer = enc
		r.hand = enc
	} else { // before the hand: examined last
		enc.newer = r.hand
		enc.older = r.hand.older
		enc.older.newer = enc
		enc.newer.older = enc
	}
	r.add(enc.size())
	r.count++
}

// add counts bytes of encodings; negative for evicted ones. The caller holds mu.
func (r *Ring) add(bytes int64) {
	r.size += bytes
	r.part.Add(bytes)
}

// shrink evicts encodings of at least the given number of bytes, if there are as many. It returns
// how many bytes it freed.
func (r *Ring) shrink(bytes int64) (freed int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for freed < bytes && r.hand != nil {
		if r.hand.used.Swap(false) {
			r.hand = r.hand.newer
			continue
		}
		r.evicted++
		victim := r.hand
		freed += victim.size()
		r.unlink(victim)
		victim.remove()
	}
	return freed
}

// Drop evicts all encodings of an entry that is unlikely to be read again.
func (r *Ring) Drop(l *List) {
	if l == nil || r == nil || l.first.Load() == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.first.Load() != r.retired {
		r.clear(l)
		l.first.Store(nil)
	}
}

// Retire evicts all encodings of an entry that left the cache, and stops it from keeping new ones:
// they would keep the entry alive.
func (r *Ring) Retire(l *List) {
	if l == nil || r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.first.Load() != r.retired {
		r.clear(l)
		l.first.Store(r.retired)
	}
}

// clear evicts all encodings of an entry. The caller holds mu.
func (r *Ring) clear(l *List) {
	for enc := l.first.Load(); enc != nil; enc = enc.next.Load() {
		r.unlink(enc)
		enc.gone = true
	}
}

// unlink removes an encoding from the ring if it is in it.
func (r *Ring) unlink(enc *encoding) {
	if enc.newer == nil {
		return
	}
	r.add(-enc.size())
	r.count--
	if enc.newer == enc {
		r.hand = nil
	} else {
		enc.older.newer = enc.newer
		enc.newer.older = enc.older
		if r.hand == enc {
			r.hand = enc.newer
		}
	}
	enc.older = nil
	enc.newer = nil
}

// remove removes an encoding from the list of its entry. Readers that have reached it continue with
// the rest of the list.
func (e *encoding) remove() {
	e.gone = true
	link := &e.owner.first
	for current := link.Load(); current != nil; current = link.Load() {
		if current == e {
			link.Store(e.next.Load())
			return
		}
		link = &current.next
	}
}

// Stats returns the values of the metrics.
func (r *Ring) Stats() (size int64, count int, evicted uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.size, r.count, r.evicted
}
