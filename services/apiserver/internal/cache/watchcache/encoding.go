package watchcache

import (
	"bytes"
	"sync"
	"sync/atomic"
	"unsafe"

	"binnacle/services/apiserver/internal/cache/memory"
)

// EncodingID identifies a kind of encoding. The caller assigns the numbers.
type EncodingID uint32

// noForm is no valid form.
const noForm = ^EncodingID(0)

// encoding is one encoding of one entry. It is made once. Eviction removes it from its entry, and
// current readers keep it.
type encoding struct {
	form EncodingID
	used atomic.Bool // read since the clock hand last passed
	done atomic.Bool // bytes are final
	// mu is held while the bytes are made. It comes before ring.mu.
	mu    sync.Mutex
	bytes []byte
	next  atomic.Pointer[encoding] // in the list of the entry; changed under ring.mu
	owner *Entry

	// Under ring.mu: the neighbours in the ring, and whether it was evicted.
	older, newer *encoding
	gone         bool
}

// encodingOverhead is the memory of an encoding without its bytes.
const encodingOverhead = int64(unsafe.Sizeof(encoding{}))

// size returns the memory of an encoding in bytes.
func (e *encoding) size() int64 { return encodingOverhead + int64(cap(e.bytes)) }

// ring holds all finished encodings. Those that were not read since the clock hand last passed are
// evicted first.
type ring struct {
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

// newRing returns an empty ring within a memory budget.
func newRing(b *memory.Budget) *ring {
	r := &ring{budget: b, retired: &encoding{form: noForm}}
	r.part = b.Cache("encodings", encodingsShare, r.shrink)
	return r
}

// encodingsShare is the share of encodings in the memory of all caches: three times as much as
// compressed responses or older states.
const encodingsShare = 3

// Encoding returns the encoding of the entry in a form. If it is absent, encode makes it, and
// concurrent callers wait for that one call. The bytes are shared and must not be changed. Errors
// are not cached. encode may request other forms of the entry, as long as no two forms need each
// other.
func (e *Entry) Encoding(form EncodingID, encode func(*Entry) ([]byte, error)) ([]byte, error) {
	if e.ring() == nil {
		return encode(e)
	}
	enc := e.find(form)
	if enc == nil {
		enc = e.ring().insert(e, form)
	}
	if enc == nil {
		return encode(e) // the entry was dropped from history, but a reader still holds it
	}
	if enc.done.Load() {
		return enc.read(), nil
	}
	b, made, err := enc.make(encode)
	if made {
		e.ring().budget.Settle()
	}
	return b, err
}

// make makes the bytes unless another caller already did.
func (e *encoding) make(encode func(*Entry) ([]byte, error)) (b []byte, made bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done.Load() {
		return e.read(), false, nil
	}
	b, err = encode(e.owner)
	if err != nil {
		return nil, false, err
	}
	if cap(b)-len(b) > len(b)/8 {
		b = bytes.Clone(b)
	}
	e.bytes = b
	e.done.Store(true)
	e.owner.ring().charge(e)
	return b, true, nil
}

// Encoded returns the encoding in a form if it exists.
func (e *Entry) Encoded(form EncodingID) ([]byte, bool) {
	enc := e.find(form)
	if enc == nil || !enc.done.Load() {
		return nil, false
	}
	return enc.read(), true
}

// Spare reports whether a low-priority encoding may be kept without evicting others.
func (e *Entry) Spare() bool { return e.ring() != nil && e.ring().budget.Spare() }

// find returns the encoding in a form, which may not be finished, or nil.
func (e *Entry) find(form EncodingID) *encoding {
	for enc := e.encodings.Load(); enc != nil; enc = enc.next.Load() {
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
func (r *ring) insert(e *Entry, form EncodingID) *encoding {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.encodings.Load() == r.retired {
		return nil
	}
	if enc := e.find(form); enc != nil {
		return enc
	}
	enc := &encoding{form: form, owner: e}
	enc.next.Store(e.encodings.Load())
	e.encodings.Store(enc)
	return enc
}

// charge accounts for a finished encoding.
func (r *ring) charge(enc *encoding) {
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
func (r *ring) add(bytes int64) {
	r.size += bytes
	r.part.Add(bytes)
}

// shrink evicts encodings of at least the given number of bytes, if there are as many. It returns
// how many bytes it freed.
func (r *ring) shrink(bytes int64) (freed int64) {
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

// drop evicts all encodings of an entry that is unlikely to be read again.
func (r *ring) drop(e *Entry) {
	if e == nil || r == nil || e.encodings.Load() == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.encodings.Load() != r.retired {
		r.clear(e)
		e.encodings.Store(nil)
	}
}

// retire evicts all encodings of an entry that left the cache, and stops it from keeping new ones:
// they would keep the entry alive.
func (r *ring) retire(e *Entry) {
	if e == nil || r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.encodings.Load() != r.retired {
		r.clear(e)
		e.encodings.Store(r.retired)
	}
}

// clear evicts all encodings of an entry. The caller holds mu.
func (r *ring) clear(e *Entry) {
	for enc := e.encodings.Load(); enc != nil; enc = enc.next.Load() {
		r.unlink(enc)
		enc.gone = true
	}
}

// unlink removes an encoding from the ring if it is in it.
func (r *ring) unlink(enc *encoding) {
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
	link := &e.owner.encodings
	for current := link.Load(); current != nil; current = link.Load() {
		if current == e {
			link.Store(e.next.Load())
			return
		}
		link = &current.next
	}
}

// stats returns the values of the metrics.
func (r *ring) stats() (size int64, count int, evicted uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.size, r.count, r.evicted
}
