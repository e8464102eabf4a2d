package watchcache

import (
	"bytes"
	"sync"
	"sync/atomic"
	"unsafe"

	"binnacle/services/apiserver/internal/memory"
)

// Form names a kind of encoding. The caller gives the numbers their meaning.
type Form uint32

// noForm is the form of nothing.
const noForm = ^Form(0)

// encoding is one encoding of one entry. It is made once; eviction takes it out
// of its entry and leaves it to whoever reads it.
type encoding struct {
	form Form
	used atomic.Bool // read since the hand last passed
	done atomic.Bool // bytes are final
	// mu is held while the bytes are made; it comes before ring.mu.
	mu    sync.Mutex
	bytes []byte
	next  atomic.Pointer[encoding] // in the entry's list; changed under ring.mu
	owner *Entry

	// Under ring.mu: neighbours in the ring, and whether it was evicted.
	older, newer *encoding
	gone         bool
}

const encodingOverhead = int64(unsafe.Sizeof(encoding{}))

func (e *encoding) size() int64 { return encodingOverhead + int64(cap(e.bytes)) }

// ring has all finished encodings. What was not read since the hand of the clock
// last passed is evicted first.
type ring struct {
	budget *memory.Budget
	part   *memory.Part
	// retired stands in the list of an entry that keeps no encodings any more.
	retired *encoding

	mu    sync.Mutex // after Store.mu and encoding.mu; nothing is taken while it is held
	size  int64
	count int
	hand  *encoding // the next candidate; nil when there is none
	// For metrics.
	evicted uint64
}

func newRing(b *memory.Budget) *ring {
	r := &ring{budget: b, retired: &encoding{form: noForm}}
	r.part = b.Cache("encodings", encodingsShare, r.shrink)
	return r
}

// encodingsShare is that of encodings in the memory of all caches: three times as
// much as compressed answers or older states.
const encodingsShare = 3

// Encoding returns the entry's encoding in a form. If it is not there, encode
// makes it; concurrent callers wait for one call. The bytes are shared and must
// not be changed. Errors are not kept. encode may ask for other forms of the
// entry, as long as no two forms need each other.
func (e *Entry) Encoding(form Form, encode func(*Entry) ([]byte, error)) ([]byte, error) {
	if e.ring() == nil {
		return encode(e)
	}
	enc := e.find(form)
	if enc == nil {
		if enc = e.ring().insert(e, form); enc == nil {
			return encode(e) // of history that is forgotten, for a reader who still has it
		}
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

// make makes the bytes unless somebody else did.
func (e *encoding) make(encode func(*Entry) ([]byte, error)) (b []byte, made bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done.Load() {
		return e.read(), false, nil
	}
	if b, err = encode(e.owner); err != nil {
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

// Encoded returns the encoding in a form if it is there.
func (e *Entry) Encoded(form Form) ([]byte, bool) {
	enc := e.find(form)
	if enc == nil || !enc.done.Load() {
		return nil, false
	}
	return enc.read(), true
}

// Spare tells that an encoding may be kept which is worth less than others: none would
// have to go for it.
func (e *Entry) Spare() bool { return e.ring() != nil && e.ring().budget.Spare() }

func (e *Entry) find(form Form) *encoding {
	for enc := e.encodings.Load(); enc != nil; enc = enc.next.Load() {
		if enc.form == form {
			return enc
		}
	}
	return nil
}

func (e *encoding) read() []byte {
	if !e.used.Load() { // spares the cache line of what is read often
		e.used.Store(true)
	}
	return e.bytes
}

// insert puts an empty encoding into the entry's list, unless there is one. It
// returns nil when the entry keeps none.
func (r *ring) insert(e *Entry, form Form) *encoding {
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

// charge counts a finished encoding.
func (r *ring) charge(enc *encoding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if enc.gone {
		return
	}
	if r.hand == nil {
		enc.older, enc.newer = enc, enc
		r.hand = enc
	} else { // before the hand: examined last
		enc.newer, enc.older = r.hand, r.hand.older
		enc.older.newer, enc.newer.older = enc, enc
	}
	r.add(enc.size())
	r.count++
}

func (r *ring) add(bytes int64) {
	r.size += bytes
	r.part.Add(bytes)
}

// shrink evicts at least so many bytes, if there are as many.
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

// drop evicts all encodings of an entry that hardly anybody is going to ask for.
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

// retire evicts all encodings of an entry that has left the cache, and lets it
// keep none from now on: they would keep the entry alive.
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

func (r *ring) clear(e *Entry) {
	for enc := e.encodings.Load(); enc != nil; enc = enc.next.Load() {
		r.unlink(enc)
		enc.gone = true
	}
}

// unlink takes an encoding out of the ring, if it is in it.
func (r *ring) unlink(enc *encoding) {
	if enc.newer == nil {
		return
	}
	r.add(-enc.size())
	r.count--
	if enc.newer == enc {
		r.hand = nil
	} else {
		enc.older.newer, enc.newer.older = enc.newer, enc.older
		if r.hand == enc {
			r.hand = enc.newer
		}
	}
	enc.older, enc.newer = nil, nil
}

// remove takes an encoding out of its entry's list. Readers that stand on it go
// on to the rest of the list.
func (e *encoding) remove() {
	e.gone = true
	at := &e.owner.encodings
	for cur := at.Load(); cur != nil; cur = at.Load() {
		if cur == e {
			at.Store(e.next.Load())
			return
		}
		at = &cur.next
	}
}

func (r *ring) stats() (size int64, count int, evicted uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.size, r.count, r.evicted
}
