package objects

import (
	"bytes"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/klauspost/compress/s2"

	"binnacle/services/apiserver/internal/cache/encodings"
	"binnacle/services/apiserver/internal/cache/valuedict"
)

// An entry stores its value in one of three forms:
//
//   - packed: as the difference to other values of the resource, in a dictionary (package valuedict)
//   - compressed: with its summary beside it (watchcache.ResourceConfig)
//   - verbatim
//
// Sizes in memory count the stored form. Entry.Borrow decodes a value into pooled memory. The
// entries of an inefficient dictionary, which blocks a new one, are replaced by equal entries
// (Store.compactDictionaries of package watchcache). No log and no watcher reports this.

// ValueEncoding describes how entries store their data. Entries of one kind share it.
type ValueEncoding struct {
	// ring holds the encodings of the entries. It is nil if no encodings are kept.
	ring *encodings.Ring
	// dictionary is that of a packed value. It is nil for other forms.
	dictionary *valuedict.Dictionary
	// sealed means that the store encrypts the value, so it is not packed with others.
	sealed bool
}

// withoutRing returns a ValueEncoding of the same form for entries that keep no encodings.
func (v *ValueEncoding) withoutRing() *ValueEncoding {
	if v == nil || v.dictionary == nil {
		return nil
	}
	return &ValueEncoding{dictionary: v.dictionary}
}

// ring returns the ring of the encodings of the entry, or nil if the entry keeps none.
func (e *Entry) ring() *encodings.Ring {
	if e.encoding == nil {
		return nil
	}
	return e.encoding.ring
}

// Dictionary returns the dictionary with which the value is packed, or nil.
func (e *Entry) Dictionary() *valuedict.Dictionary {
	if e.encoding == nil {
		return nil
	}
	return e.encoding.dictionary
}

// Encoding returns the encoding of the entry in a form. If it is absent, encode makes it, and
// concurrent callers wait for that one call. The bytes are shared and must not be changed. Errors
// are not cached. encode may request other forms of the entry, as long as no two forms need each
// other.
func (e *Entry) Encoding(form encodings.ID, encode func(*Entry) ([]byte, error)) ([]byte, error) {
	if e.ring() == nil {
		return encode(e)
	}
	if b, ok := e.encodings.Find(form); ok { // avoids the allocation of a closure
		return b, nil
	}
	return e.ring().Get(&e.encodings, form, func() ([]byte, error) { return encode(e) })
}

// Encoded returns the encoding in a form if it exists.
func (e *Entry) Encoded(form encodings.ID) ([]byte, bool) { return e.encodings.Find(form) }

// HasSpareMemory reports whether a low-priority encoding may be kept without evicting others.
func (e *Entry) HasSpareMemory() bool { return e.ring() != nil && e.ring().HasSpareMemory() }

// DropEncodings evicts the encodings of the entry, which is unlikely to be read again. The entry
// may be nil.
func (e *Entry) DropEncodings() {
	if e != nil && e.ring() != nil {
		e.ring().Drop(&e.encodings)
	}
}

// Retire evicts the encodings of the entry, which left the cache, and stops it from keeping new
// ones. The entry may be nil.
func (e *Entry) Retire() {
	if e != nil && e.ring() != nil {
		e.ring().Retire(&e.encodings)
	}
}

// Retired reports whether the entry has left the cache.
func (e *Entry) Retired() bool { return e.ring() != nil && e.ring().Retired(&e.encodings) }

// asText returns a string that shares the memory of a value. The value must never change.
func asText(value []byte) string { return unsafe.String(unsafe.SliceData(value), len(value)) }

// bytes returns the stored form of the value.
func (e *Entry) bytes() []byte {
	if e.stored == "" {
		return nil
	}
	return unsafe.Slice(unsafe.StringData(e.stored), len(e.stored))
}

// Stored returns the value as it is in the store. It must not be changed.
func (e *Entry) Stored() []byte {
	dict := e.Dictionary()
	switch {
	case dict != nil:
		return dict.Append(nil, e.bytes())
	case e.entryID&compressedFlag != 0:
		return decompress(nil, e.bytes())
	}
	return e.bytes()
}

// Size returns the size of the value in bytes.
func (e *Entry) Size() int {
	switch {
	case e.Dictionary() != nil:
		return valuedict.Size(e.bytes())
	case e.entryID&compressedFlag != 0:
		n, _ := s2.DecodedLen(e.bytes())
		return n
	}
	return len(e.stored)
}

// HasStored reports whether the entry has the given value.
func (e *Entry) HasStored(value []byte) bool {
	borrowed := e.Borrow()
	defer borrowed.Release()
	return bytes.Equal(borrowed.Value, value)
}

// PooledValue is a borrowed value of an entry. It is valid until Release.
type PooledValue struct {
	Value []byte
	// buffer is the pooled buffer that Value is in, or nil if the entry itself holds Value.
	buffer *[]byte
}

// maxBorrowed is the largest buffer that is returned to the pool, in bytes.
const maxBorrowed = 256 << 10

var borrowPool = sync.Pool{New: func() any { return new([]byte) }}

// Borrow returns the same as Stored, in pooled memory. The caller must not refer to it after
// Release.
func (e *Entry) Borrow() PooledValue {
	dict := e.Dictionary()
	if dict == nil && e.entryID&compressedFlag == 0 {
		return PooledValue{Value: e.bytes()}
	}
	buffer, _ := borrowPool.Get().(*[]byte)
	if dict != nil {
		return PooledValue{Value: dict.Append((*buffer)[:0], e.bytes()), buffer: buffer}
	}
	return PooledValue{Value: decompress(*buffer, e.bytes()), buffer: buffer}
}

// Release returns the memory of the value to the pool.
func (b PooledValue) Release() {
	if b.buffer == nil {
		return
	}
	if overwriteReleased {
		for i := range b.Value {
			b.Value[i] = 0xdb
		}
	}
	if cap(b.Value) <= maxBorrowed {
		*b.buffer = b.Value[:0]
	}
	borrowPool.Put(b.buffer)
}

// compressBuffers holds buffers for compression.
var compressBuffers = sync.Pool{New: func() any { return new([]byte) }}

// Compress compresses the value if it is large and shrinks to half or less. The summary is kept
// beside it, unless the summary is the value. The entry must not be published yet.
func (e *Entry) Compress(summary []byte) {
	if len(e.stored) < minCompressedSize {
		return
	}
	if len(summary) > len(e.stored)/2 {
		summary = nil
	}
	scratch, _ := compressBuffers.Get().(*[]byte)
	defer compressBuffers.Put(scratch)
	small := s2.Encode(*scratch, e.bytes())
	*scratch = small[:cap(small)]
	if len(small) > len(e.stored)/2 {
		return
	}
	all := make([]byte, 0, len(small)+len(summary)+trailerSize)
	all = append(append(all, small...), summary...)
	e.stored = asText(binary.LittleEndian.AppendUint32(all, uint32(len(summary))))
	e.entryID |= compressedFlag
}

// decompress decompresses a value that Compress wrote, into buf if it fits.
func decompress(buf, value []byte) []byte {
	out, err := s2.Decode(buf[:cap(buf)], value[:summaryStart(value)])
	if err != nil { // unreachable: only Compress writes these values; decoders report the empty value
		return nil
	}
	return out
}

// summaryStart returns where the summary starts in the output of Compress.
func summaryStart(value []byte) int {
	end := len(value) - trailerSize
	return end - int(binary.LittleEndian.Uint32(value[end:]))
}

// NewValueEncoding returns the encoding of entries whose values are kept as stored. sealed means
// that the store encrypts the values.
func NewValueEncoding(ring *encodings.Ring, sealed bool) *ValueEncoding {
	return &ValueEncoding{ring: ring, sealed: sealed}
}

// Packer packs the values of a resource with shared dictionaries.
type Packer struct {
	ring         *encodings.Ring
	dictionaries valuedict.Pool
	encoding     atomic.Pointer[ValueEncoding] // with the most recently used dictionary
}

// NewPacker returns a packer for entries whose encodings are in a ring.
func NewPacker(ring *encodings.Ring) *Packer { return &Packer{ring: ring} }

// Pack packs the value of an entry, if that is worthwhile when all values of the resource together
// have total bytes. The entry must not be published yet.
func (p *Packer) Pack(e *Entry, total int64) {
	packedValue, dict := p.dictionaries.Pack(e.bytes(), total)
	if dict == nil {
		return
	}
	encoding := p.encoding.Load()
	if encoding == nil || encoding.dictionary != dict {
		encoding = &ValueEncoding{ring: p.ring, dictionary: dict}
		p.encoding.Store(encoding)
	}
	e.stored = asText(packedValue)
	e.encoding = encoding
}

// Compact releases unused memory of the dictionaries, whose values have total bytes. It returns the
// dictionaries that block a new one.
func (p *Packer) Compact(total int64) (blocking []*valuedict.Dictionary) {
	return p.dictionaries.Compact(total)
}
