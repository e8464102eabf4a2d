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
	// fewBooks is how many of the largest are in use at once where values are few, and bytesPerBook
	// for how many bytes of values there is one more.
	fewBooks, bytesPerBook = 4, 16 << 20
	// patientTidies is after how many Tidies in which nothing was found it is forgotten what values
	// had of their own.
	patientTidies = 20
	// every is the distance of places in the text that are in its index: phrases are longer.
	every = 4
)

// Shelf packs values of one sort. Its zero value has no book yet. It is safe for concurrent use,
// and must not be copied.
type Shelf struct {
	current atomic.Pointer[index]
	// pause is how many more values that pack badly are not looked at.
	pause atomic.Int64

	mu sync.Mutex
	learner
	// full are books that were followed by an empty one.
	full []weak.Pointer[Book]
	// crowded: another one is wanted, and there are as many as may be.
	crowded bool
}

var scratch = sync.Pool{New: func() any { return new([]byte) }}

// Pack returns a value packed, and with which book, or no book when it is not worth that. all is
// how many bytes the values have that there are: what books take is a part of it.
func (s *Shelf) Pack(value []byte, all int64) ([]byte, *Book) {
	if len(value) < leastValue {
		return nil, nil
	}
	x := s.current.Load()
	if x == nil {
		if all < worthBook {
			return nil, nil
		}
		x = s.begin()
	}
	room, _ := scratch.Get().(*[]byte)
	defer scratch.Put(room)
	packed, own := x.pack((*room)[:0], value)
	if cap(packed) <= mostScratch {
		*room = packed[:0]
	}
	if own > len(value)/learnFrom {
		s.learn(value, all)
	}
	if len(packed) > len(value)*3/4 {
		return nil, nil
	}
	return slices.Clone(packed), x.book
}

// mostScratch is how large room is kept for the next value, in bytes.
const mostScratch = 256 << 10

// begin makes the first book.
func (s *Shelf) begin() *index {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.current.Load()
	if x == nil {
		x = newIndex(firstBook, every)
		s.current.Store(x)
	}
	return x
}

// turn returns the index of a book that has room for a phrase, which is the next one if need be;
// nil when there is none. The caller holds mu.
func (s *Shelf) turn(phrase int, all int64) *index {
	x := s.current.Load()
	if x == nil || x.room() >= phrase {
		return x
	}
	size := len(x.book.text)
	if size*growth <= lastBook && all >= worthOf(size*growth) {
		larger := newIndex(size*growth, every)
		larger.add(x.book.text[:x.book.used.Load()])
		s.current.Store(larger)
		return larger
	}
	if s.left += phrase; s.left < size/2 { // which would have been of use
		return nil
	}
	s.full = slices.DeleteFunc(s.full, func(b weak.Pointer[Book]) bool { return b.Value() == nil })
	books := len(s.full) + 2
	if books > 2 && (all < worthOf(books*size) || int64(books-fewBooks)*bytesPerBook > all) {
		s.crowded = true
		return nil
	}
	s.left = 0
	s.full = append(s.full, weak.Make(x.book))
	s.current.Store(newIndex(size, every))
	return s.current.Load()
}

// Tidy gives back what is not needed any more, now that the values have so many bytes. It returns
// the books that stand in the way of a new one: one goes once nothing is packed with it.
func (s *Shelf) Tidy(all int64) (crowd []*Book) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idle++; s.found > 0 {
		s.found, s.idle = 0, 0
	}
	if s.idle > patientTidies {
		s.heard = nil
	}
	if x := s.current.Load(); x != nil && (all < worthOf(len(x.book.text))/2 && len(x.book.text) > firstBook || all < worthBook/2) {
		s.current.Store(nil)
	}
	if s.crowded {
		s.crowded = false
		for _, b := range s.full {
			if b := b.Value(); b != nil {
				crowd = append(crowd, b)
			}
		}
	}
	return crowd
}

// Takes is what a book takes of memory, in bytes.
func (b *Book) Takes() int64 { return int64(len(b.text)) }
