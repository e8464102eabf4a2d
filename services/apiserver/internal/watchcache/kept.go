package watchcache

import (
	"bytes"
	"sync"
	"unsafe"

	"github.com/klauspost/compress/s2"

	"binnacle/services/apiserver/internal/phrases"
)

// kept says how entries keep what they have: where their encodings are, and the book that their
// values are packed with, if they are.
type kept struct {
	ring *ring // nil: encodings are not kept
	book *phrases.Book
	// sealed: the store has the value encrypted, so that it is packed with no other.
	sealed bool
}

// alone is the same without encodings.
func (k *kept) alone() *kept {
	if k == nil || k.book == nil {
		return nil
	}
	return &kept{book: k.book}
}

func (e *Entry) ring() *ring {
	if e.kept == nil {
		return nil
	}
	return e.kept.ring
}

func (e *Entry) book() *phrases.Book {
	if e.kept == nil {
		return nil
	}
	return e.kept.book
}

// asText refers to a value that nobody changes.
func asText(value []byte) string { return unsafe.String(unsafe.SliceData(value), len(value)) }

// bytes is what is kept of the value.
func (e *Entry) bytes() []byte {
	if e.stored == "" {
		return nil
	}
	return unsafe.Slice(unsafe.StringData(e.stored), len(e.stored))
}

// bind packs the entry's value by what it has in common with others of the resource, if that is
// worth it, where all values have so many bytes. Nobody has seen the entry yet.
func (s *Store) bind(e *Entry, all int64) {
	small, book := s.shelf.Pack(e.bytes(), all)
	if book == nil {
		return
	}
	k := s.bound.Load()
	if k == nil || k.book != book {
		k = &kept{ring: s.cache.ring, book: book}
		s.bound.Store(k)
	}
	e.stored, e.kept = asText(small), k
}

// Stored returns the value as it is stored. It must not be changed.
func (e *Entry) Stored() []byte {
	switch book := e.book(); {
	case book != nil:
		return book.Append(nil, e.bytes())
	case e.id&packed != 0:
		return unpacked(nil, e.bytes())
	}
	return e.bytes()
}

// Size is the size of the value in bytes.
func (e *Entry) Size() int {
	switch {
	case e.book() != nil:
		return phrases.Size(e.bytes())
	case e.id&packed != 0:
		n, _ := s2.DecodedLen(e.bytes())
		return n
	}
	return len(e.stored)
}

// has tells whether the value is this one.
func (e *Entry) has(value []byte) bool {
	l := e.Lend()
	defer l.Back()
	return bytes.Equal(l.Value, value)
}

// Lent is the value of an entry, until it is given back.
type Lent struct {
	Value  []byte
	pooled *[]byte
}

// mostLent is how large the room for a value is that is kept for the next, in bytes.
const mostLent = 256 << 10

var lending = sync.Pool{New: func() any { return new([]byte) }}

// Lend returns what Stored does, in memory that serves others once it is given back: nothing may
// refer to it then.
func (e *Entry) Lend() Lent {
	book := e.book()
	if book == nil && e.id&packed == 0 {
		return Lent{Value: e.bytes()}
	}
	l := Lent{}
	l.pooled, _ = lending.Get().(*[]byte)
	if book != nil {
		l.Value = book.Append((*l.pooled)[:0], e.bytes())
	} else {
		l.Value = unpacked(*l.pooled, e.bytes())
	}
	return l
}

// Back gives the value back.
func (l Lent) Back() {
	if l.pooled == nil {
		return
	}
	if spoil {
		for i := range l.Value {
			l.Value[i] = 0xdb
		}
	}
	if cap(l.Value) <= mostLent {
		*l.pooled = l.Value[:0]
	}
	lending.Put(l.pooled)
}
