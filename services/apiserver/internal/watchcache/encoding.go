package watchcache

import (
	"bytes"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Form names a kind of encoding. The caller gives the numbers their meaning.
type Form uint32

// encoding is one encoding of one entry. It is made once; eviction takes it out
// of its entry and leaves it to whoever reads it.
type encoding struct {
	form Form
	used atomic.Bool // read since the hand last passed
	done atomic.Bool // bytes are final
	// mu is held while the bytes are made; it comes before budget.mu.
	mu    sync.Mutex
	bytes []byte
	next  atomic.Pointer[encoding] // in the entry's list; changed under budget.mu
	owner *Entry

	// Under budget.mu: neighbours in the ring, and whether it was evicted.
	older, newer *encoding
	gone         bool
}

const encodingOverhead = int64(unsafe.Sizeof(encoding{}))

func (e *encoding) size() int64 { return encodingOverhead + int64(cap(e.bytes)) }

// budget bounds the bytes of all encodings. What was not read since the hand of
// the clock last passed is evicted first.
type budget struct {
	limit int64
	mu    sync.Mutex // after Store.mu and encoding.mu; nothing is taken while it is held
	size  int64
	count int
	hand  *encoding // the next candidate; nil when there is none
	// For metrics.
	evicted uint64
}

// Encoding returns the entry's encoding in a form. If it is not there, encode
// makes it; concurrent callers wait for one call. The bytes are shared and must
// not be changed. Errors are not kept. encode may ask for other forms of the
// entry, as long as no two forms need each other.
func (e *Entry) Encoding(form Form, encode func(*Entry) ([]byte, error)) ([]byte, error) {
	if e.budget == nil {
		return encode(e)
	}
	enc := e.find(form)
	if enc == nil {
		enc = e.budget.insert(e, form)
	}
	if enc.done.Load() {
		return enc.read(), nil
	}
	enc.mu.Lock()
	defer enc.mu.Unlock()
	if enc.done.Load() {
		return enc.read(), nil
	}
	b, err := encode(e)
	if err != nil {
		return nil, err
	}
	if cap(b)-len(b) > len(b)/8 {
		b = bytes.Clone(b)
	}
	enc.bytes = b
	enc.done.Store(true)
	e.budget.charge(enc)
	return b, nil
}

// Encoded returns the encoding in a form if it is there.
func (e *Entry) Encoded(form Form) ([]byte, bool) {
	enc := e.find(form)
	if enc == nil || !enc.done.Load() {
		return nil, false
	}
	return enc.read(), true
}

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

// insert puts an empty encoding into the entry's list, unless there is one.
func (b *budget) insert(e *Entry, form Form) *encoding {
	b.mu.Lock()
	defer b.mu.Unlock()
	if enc := e.find(form); enc != nil {
		return enc
	}
	enc := &encoding{form: form, owner: e}
	enc.next.Store(e.encodings.Load())
	e.encodings.Store(enc)
	return enc
}

// charge counts a finished encoding and evicts until the limit is kept.
func (b *budget) charge(enc *encoding) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if enc.gone {
		return
	}
	if b.hand == nil {
		enc.older, enc.newer = enc, enc
		b.hand = enc
	} else { // before the hand: examined last
		enc.newer, enc.older = b.hand, b.hand.older
		enc.older.newer, enc.newer.older = enc, enc
	}
	b.size += enc.size()
	b.count++
	for b.size > b.limit && b.hand != nil {
		if b.hand.used.Swap(false) {
			b.hand = b.hand.newer
			continue
		}
		b.evicted++
		victim := b.hand
		b.unlink(victim)
		victim.remove()
	}
}

// drop evicts all encodings of an entry that nobody is going to ask for.
func (b *budget) drop(e *Entry) {
	if e == nil || b == nil || e.encodings.Load() == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for enc := e.encodings.Load(); enc != nil; enc = enc.next.Load() {
		b.unlink(enc)
		enc.gone = true
	}
	e.encodings.Store(nil)
}

// unlink takes an encoding out of the ring, if it is in it.
func (b *budget) unlink(enc *encoding) {
	if enc.newer == nil {
		return
	}
	b.size -= enc.size()
	b.count--
	if enc.newer == enc {
		b.hand = nil
	} else {
		enc.older.newer, enc.newer.older = enc.newer, enc.older
		if b.hand == enc {
			b.hand = enc.newer
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

func (b *budget) stats() (size int64, count int, evicted uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.size, b.count, b.evicted
}
