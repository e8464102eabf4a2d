package watchcache

import (
	"bytes"
	gc "runtime/metrics"
	"sync"
	"unsafe"
	"weak"

	"github.com/klauspost/compress/s2"

	"binnacle/services/apiserver/internal/cache/encodings"
	"binnacle/services/apiserver/internal/cache/valuedict"
)

// valueEncoding describes how entries store their data: the ring of their encodings, and the
// dictionary with which their values are packed, if any. The value of an entry is stored as its
// difference to other values of the resource (package valuedict), or compressed beside its
// outline, or as is. Sizes count the stored form. Entry.Borrow decodes a value into
// pooled memory. Periodically the entries of an inefficient dictionary, which blocks a new one,
// are replaced by equal entries. No log and no watcher reports this.
type valueEncoding struct {
	ring *encodings.Ring // nil: encodings are not kept
	dict *valuedict.Dictionary
	// sealed means that the store encrypts the value, so it is not packed with others.
	sealed bool
}

// withoutEncodings returns the same without encodings.
func (k *valueEncoding) withoutEncodings() *valueEncoding {
	if k == nil || k.dict == nil {
		return nil
	}
	return &valueEncoding{dict: k.dict}
}

func (e *Entry) ring() *encodings.Ring {
	if e.encoding == nil {
		return nil
	}
	return e.encoding.ring
}

func (e *Entry) dict() *valuedict.Dictionary {
	if e.encoding == nil {
		return nil
	}
	return e.encoding.dict
}

// Encoding returns the encoding of the entry in a form. If it is absent, encode makes it, and
// concurrent callers wait for that one call. The bytes are shared and must not be changed. Errors
// are not cached. encode may request other forms of the entry, as long as no two forms need each
// other.
func (e *Entry) Encoding(form encodings.ID, encode func(*Entry) ([]byte, error)) ([]byte, error) {
	if e.ring() == nil {
		return encode(e)
	}
	if b, ok := e.encodings.Find(form); ok { // needs no closure
		return b, nil
	}
	return e.ring().Get(&e.encodings, form, func() ([]byte, error) { return encode(e) })
}

// Encoded returns the encoding in a form if it exists.
func (e *Entry) Encoded(form encodings.ID) ([]byte, bool) { return e.encodings.Find(form) }

// Spare reports whether a low-priority encoding may be kept without evicting others.
func (e *Entry) Spare() bool { return e.ring() != nil && e.ring().Spare() }

// dropEncodings evicts the encodings of the entry, which is unlikely to be read again. The entry
// may be nil.
func (e *Entry) dropEncodings() {
	if e != nil {
		e.ring().Drop(&e.encodings)
	}
}

// retire evicts the encodings of the entry, which left the cache, and stops it from keeping new
// ones. The entry may be nil.
func (e *Entry) retire() {
	if e != nil {
		e.ring().Retire(&e.encodings)
	}
}

// asText returns a string that shares the memory of a value. The value must never change.
func asText(value []byte) string { return unsafe.String(unsafe.SliceData(value), len(value)) }

// bytes returns the stored form of the value.
func (e *Entry) bytes() []byte {
	if e.stored == "" {
		return nil
	}
	return unsafe.Slice(unsafe.StringData(e.stored), len(e.stored))
}

// bind packs the entry's value with the dictionary of the resource, if that is worthwhile when all
// values together have all bytes. The entry must not be published yet.
func (s *Store) bind(e *Entry, all int64) {
	small, dict := s.dictionaries.Pack(e.bytes(), all)
	if dict == nil {
		return
	}
	k := s.bound.Load()
	if k == nil || k.dict != dict {
		k = &valueEncoding{ring: s.cache.ring, dict: dict}
		s.bound.Store(k)
	}
	e.stored = asText(small)
	e.encoding = k
}

// Stored returns the value as it is in the store. It must not be changed.
func (e *Entry) Stored() []byte {
	dict := e.dict()
	switch {
	case dict != nil:
		return dict.Append(nil, e.bytes())
	case e.id&packed != 0:
		return unpacked(nil, e.bytes())
	}
	return e.bytes()
}

// Size returns the size of the value in bytes.
func (e *Entry) Size() int {
	switch {
	case e.dict() != nil:
		return valuedict.Size(e.bytes())
	case e.id&packed != 0:
		n, _ := s2.DecodedLen(e.bytes())
		return n
	}
	return len(e.stored)
}

// has reports whether the entry has the given value.
func (e *Entry) has(value []byte) bool {
	l := e.Borrow()
	defer l.Release()
	return bytes.Equal(l.Value, value)
}

// Borrowed is a borrowed value of an entry. It is valid until Release.
type Borrowed struct {
	Value  []byte
	pooled *[]byte
}

// maxBorrowed is the largest buffer that is returned to the pool, in bytes.
const maxBorrowed = 256 << 10

var borrowPool = sync.Pool{New: func() any { return new([]byte) }}

// Borrow returns the same as Stored, in pooled memory. The caller must not refer to it after Release.
func (e *Entry) Borrow() Borrowed {
	dict := e.dict()
	if dict == nil && e.id&packed == 0 {
		return Borrowed{Value: e.bytes()}
	}
	l := Borrowed{}
	l.pooled, _ = borrowPool.Get().(*[]byte)
	if dict != nil {
		l.Value = dict.Append((*l.pooled)[:0], e.bytes())
	} else {
		l.Value = unpacked(*l.pooled, e.bytes())
	}
	return l
}

// Release returns the memory of the value to the pool.
func (l Borrowed) Release() {
	if l.pooled == nil {
		return
	}
	if spoil {
		for i := range l.Value {
			l.Value[i] = 0xdb
		}
	}
	if cap(l.Value) <= maxBorrowed {
		*l.pooled = l.Value[:0]
	}
	borrowPool.Put(l.pooled)
}

const (
	// pinSample is the number of bytes of values that leave the cache per tracked value. The
	// tracked value stands for all of them.
	pinSample = 64 << 10
	minPruned = 64
)

// pinned estimates the memory of versions that left the cache and are still referenced: by a
// response that is being written, or by a watcher that does not read. It keeps none of them alive.
type pinned struct {
	mu      sync.Mutex // a leaf lock
	skipped int64      // bytes that left since the last tracked value
	left    []leftValue
	prune   int // the length at which collected values are removed
}

// leftValue is a value that left the cache.
type leftValue struct {
	value  weak.Pointer[byte]
	weight int64
	cycles uint64 // garbage collection cycles when it left
}

// leave records that the cache does not refer to an entry any more.
func (p *pinned) leave(e *Entry) {
	if e == nil || len(e.stored) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.skipped += int64(len(e.stored))
	if p.skipped < pinSample {
		return
	}
	if len(p.left) >= max(p.prune, minPruned) {
		p.forgetCollected()
		p.prune = 2 * len(p.left)
	}
	p.left = append(p.left, leftValue{weak.Make(unsafe.StringData(e.stored)), p.skipped, collections()})
	p.skipped = 0
}

func (p *pinned) forgetCollected() {
	kept := p.left[:0]
	for _, v := range p.left {
		if v.value.Value() != nil {
			kept = append(kept, v)
		}
	}
	clear(p.left[len(kept):])
	p.left = kept
}

// bytes returns the estimated memory. A value that left during a collection may survive it, so it
// counts only if it survives the next one.
func (p *pinned) bytes() (n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgetCollected()
	now := collections()
	for _, v := range p.left {
		if now >= v.cycles+2 {
			n += v.weight
		}
	}
	return n
}

// collections returns the number of completed garbage collection cycles.
func collections() uint64 {
	s := []gc.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	gc.Read(s)
	if s[0].Value.Kind() != gc.KindUint64 {
		return 0
	}
	return s[0].Value.Uint64()
}
