package tape

import (
	"errors"
	"sync"
)

const (
	// MaxDepth is the maximum nesting depth, the same as that of Go's decoder.
	MaxDepth = 10_000
	// MaxBytes is the maximum length of a document. It exceeds the limits of requests and stored
	// values.
	MaxBytes = 64 << 20
)

// ErrTooLarge reports that a document is longer than MaxBytes, or that an array or object has too
// many entries.
var ErrTooLarge = errors.New("the document is too large")

// Kind is the type of a value.
type Kind uint8

// The kinds of values. Key is an object's key, which precedes its value.
const (
	Null Kind = iota
	False
	True
	Number
	String
	Array
	Object
	Key
)

const (
	// escaped: the text of a string or key has escapes.
	escaped = 1 << iota
	// malformed: the text of a string or key is not valid UTF-8.
	malformed
	// shadowed: the key occurs again later in its object, and the last occurrence counts.
	shadowed
	// wide: the text of a string or key is not pure ASCII.
	wide
)

// Ref is an index into the list of a Doc. None is not a valid index.
type Ref uint32

// Root is the document as a whole.
const Root Ref = 0

// None stands for a missing value.
const None Ref = 1<<32 - 1

// entry is a key or a value on the tape.
type entry struct {
	start, end uint32 // of the text; without quotes for strings and keys
	next       Ref    // the entry after the value
	// packed holds the number of members or items in the upper 24 bits, then 4 bits of kind and 4
	// bits of flags.
	packed uint32
}

func (e *entry) count() int   { return int(e.packed >> 8) }
func (e *entry) kind() Kind   { return Kind(e.packed >> 4 & 15) }
func (e *entry) flags() uint8 { return uint8(e.packed & 15) }

// Doc is a JSON document with the list of its values.
type Doc struct {
	raw     []byte
	entries []entry
	unclean bool // a key is repeated or a string is not valid UTF-8
	// keys is scratch space of the parser, which finds repeated keys with it.
	keys map[string]Ref

	mu sync.Mutex // guards the fields below
	// members and items index large objects and arrays. They are built on first use.
	members map[Ref]map[string]Ref
	items   map[Ref][]Ref
}

var pool = sync.Pool{New: func() any { return new(Doc) }}

// maxPooledEntries is the maximum capacity of a list that the pool retains.
const maxPooledEntries = 1 << 16

// Release returns the memory of the list to the pool. The document must not be used afterwards.
// Releasing nil does nothing.
func (d *Doc) Release() {
	if d == nil || cap(d.entries) > maxPooledEntries {
		return
	}
	d.raw = nil
	d.entries = d.entries[:0]
	d.unclean = false
	d.members = nil
	d.items = nil
	pool.Put(d)
}

// Raw returns the document's text.
func (d *Doc) Raw() []byte { return d.raw }

// Clean reports whether the document has no repeated key and only valid UTF-8. Canonicalize returns
// such a document.
func (d *Doc) Clean() bool { return !d.unclean }

// Kind returns the kind of a value.
func (d *Doc) Kind(r Ref) Kind { return d.entries[r].kind() }

// Len returns the number of members of an object or items of an array.
func (d *Doc) Len(r Ref) int { return d.entries[r].count() }

// First returns the first key of an object or the first item of an array. It equals Next(r) if
// there is none.
func (d *Doc) First(r Ref) Ref { return r + 1 }

// Next returns the item or key that follows a value. For the last value in an array or object, it
// equals Next of that array or object.
func (d *Doc) Next(r Ref) Ref { return d.entries[r].next }

// Value returns the value of a key.
func (d *Doc) Value(key Ref) Ref { return key + 1 }

// Span returns the position of the text of a value, including quotes.
func (d *Doc) Span(r Ref) (start, end int) {
	tapeEntry := &d.entries[r]
	if k := tapeEntry.kind(); k == String || k == Key {
		return int(tapeEntry.start) - 1, int(tapeEntry.end) + 1
	}
	return int(tapeEntry.start), int(tapeEntry.end)
}

// Text returns the text of a value, including quotes.
func (d *Doc) Text(r Ref) []byte {
	start, end := d.Span(r)
	return d.raw[start:end]
}

// maxLinearSearch is the number of members or items up to which a search is linear.
const maxLinearSearch = 24

// Find returns the value of an object's key, or None.
func (d *Doc) Find(object Ref, key string) Ref {
	if d.Kind(object) != Object {
		return None
	}
	if d.Len(object) > maxLinearSearch {
		return d.findIndexed(object, key)
	}
	for k, end := d.First(object), d.Next(object); k < end; k = d.Next(k + 1) {
		if e := &d.entries[k]; e.flags()&shadowed == 0 && d.IsText(k, key) {
			return k + 1
		}
	}
	return None
}

// findIndexed finds a member of a large object. It builds an index on first use.
func (d *Doc) findIndexed(object Ref, key string) Ref {
	d.mu.Lock()
	defer d.mu.Unlock()
	index, ok := d.members[object]
	if !ok {
		index = make(map[string]Ref, d.Len(object))
		for k, end := d.First(object), d.Next(object); k < end; k = d.Next(k + 1) {
			index[d.String(k)] = k + 1 // the last occurrence counts
		}
		if d.members == nil {
			d.members = map[Ref]map[string]Ref{}
		}
		d.members[object] = index
	}
	if v, ok := index[key]; ok {
		return v
	}
	return None
}

// Item returns an item of an array. The index must be in range.
func (d *Doc) Item(array Ref, index int) Ref {
	if d.Len(array) > maxLinearSearch {
		return d.itemIndexed(array, index)
	}
	i := d.First(array)
	for range index {
		i = d.Next(i)
	}
	return i
}

// itemIndexed finds an item of a large array. It builds an index on first use.
func (d *Doc) itemIndexed(array Ref, index int) Ref {
	d.mu.Lock()
	defer d.mu.Unlock()
	refs, ok := d.items[array]
	if !ok {
		refs = make([]Ref, 0, d.Len(array))
		for i, end := d.First(array), d.Next(array); i < end; i = d.Next(i) {
			refs = append(refs, i)
		}
		if d.items == nil {
			d.items = map[Ref][]Ref{}
		}
		d.items[array] = refs
	}
	return refs[index]
}

// IsText reports whether a string or key equals text.
func (d *Doc) IsText(ref Ref, text string) bool {
	tapeEntry := &d.entries[ref]
	if tapeEntry.flags()&(escaped|malformed) != 0 {
		return d.String(ref) == text
	}
	return int(tapeEntry.end-tapeEntry.start) == len(text) && string(d.raw[tapeEntry.start:tapeEntry.end]) == text
}

// IsShadowedKey reports whether an equal key follows later in the same object. The later member
// then applies: in {"a": 1, "a": 2}, only the first key is shadowed.
func (d *Doc) IsShadowedKey(key Ref) bool { return d.entries[key].flags()&shadowed != 0 }

// Entries returns the length of the list. Every valid Ref is less.
func (d *Doc) Entries() int { return len(d.entries) }
