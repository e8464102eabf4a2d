package phrases

import (
	"slices"
	"sync"
	"sync/atomic"
	"weak"
)

const (
	// firstBook and lastBook are the sizes of books. growth is how much larger the next one is.
	firstBook, lastBook, growth = 16 << 10, 256 << 10, 4
	// mostBooks is how many of the largest are in use at once.
	mostBooks = 4
	// every is the distance of places in the text that are in its index: phrases are longer.
	every = 4
)

// Shelf packs values of one sort. Its zero value has no book yet. It is safe for concurrent use,
// and must not be copied.
type Shelf struct {
	seen    atomic.Int64 // bytes of values
	current atomic.Pointer[index]
	// pause is how many more values that pack badly are not looked at.
	pause atomic.Int64

	mu sync.Mutex
	learner
	// full are books of the largest size that were followed by another.
	full []weak.Pointer[Book]
}

var scratch = sync.Pool{New: func() any { return new([]byte) }}

// Pack returns a value packed, and with which book, or no book when it is not worth that.
func (s *Shelf) Pack(value []byte) ([]byte, *Book) {
	if len(value) < leastValue {
		return nil, nil
	}
	seen := s.seen.Add(int64(len(value)))
	x := s.current.Load()
	if x == nil {
		if seen < worthBook {
			return nil, nil
		}
		x = s.begin()
	}
	room, _ := scratch.Get().(*[]byte)
	defer scratch.Put(room)
	packed, own := x.pack((*room)[:0], value)
	*room = packed[:0]
	if own > len(value)/learnFrom {
		s.learn(value)
	}
	if len(packed) > len(value)*3/4 {
		return nil, nil
	}
	return slices.Clone(packed), x.book
}

// begin makes the first book.
func (s *Shelf) begin() *index {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current.Load() == nil {
		s.current.Store(newIndex(firstBook, every))
	}
	return s.current.Load()
}

// turn returns the index of a book that has room for a phrase, which is the next one if need be;
// nil when there is none. The caller holds mu.
func (s *Shelf) turn(phrase int) *index {
	x := s.current.Load()
	if x.room() >= phrase {
		return x
	}
	size := len(x.book.text) * growth
	if size <= lastBook {
		larger := newIndex(size, every)
		larger.add(x.book.text[:x.book.used.Load()])
		s.current.Store(larger)
		return larger
	}
	if s.left += phrase; s.left < lastBook/2 { // which would have been of use
		return nil
	}
	s.full = slices.DeleteFunc(s.full, func(b weak.Pointer[Book]) bool { return b.Value() == nil })
	if len(s.full)+1 >= mostBooks {
		return nil
	}
	s.left = 0
	s.full = append(s.full, weak.Make(x.book))
	s.current.Store(newIndex(lastBook, every))
	return s.current.Load()
}
