package valuedict

import (
	"slices"
	"sync"
	"sync/atomic"
	"weak"
)

const (
	// firstBook and lastBook are the smallest and largest book size in bytes. growth is the factor
	// between sizes.
	firstBook, lastBook, growth = 16 << 10, 256 << 10, 4
	// fewBooks is the number of largest books allowed at a time. bytesPerBook is the number of
	// bytes of values for each additional book.
	fewBooks, bytesPerBook = 4, 16 << 20
	// patientTidies is the number of calls of Tidy without new phrases after which the text of
	// recent values is discarded.
	patientTidies = 20
	// every is the distance of the indexed positions in a book. Phrases are longer.
	every = 4
)

// Shelf packs values of one type. Its zero value has no book yet. It is safe for concurrent use,
// and must not be copied.
type Shelf struct {
	current atomic.Pointer[index]
	// pause is how many more badly packed values are skipped by learn.
	pause atomic.Int64

	mu sync.Mutex
	learner
	// full holds the books that were followed by an empty one.
	full []weak.Pointer[Book]
	// crowded reports that a new book is needed but the limit of books is reached.
	crowded bool
}

var scratch = sync.Pool{New: func() any { return new([]byte) }}

// Pack returns a packed value and its book, or no book if packing does not pay. all is the total
// size in bytes of all values, which limits the size of the books.
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

// mostScratch is the maximum size in bytes of a buffer that is returned to the pool.
const mostScratch = 256 << 10

// begin creates the first book.
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

// turn returns the index of a book with room for a phrase, which may be a new one. It returns nil
// if no new book is allowed. The caller holds mu.
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
	if s.left += phrase; s.left < size/2 { // too few bytes lost to justify a new book
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

// Tidy frees memory that is no longer needed for values of the given total size. It returns the
// books that prevent a new one. A book is freed once no value is packed with it.
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

// Takes returns the memory of a book in bytes.
func (b *Book) Takes() int64 { return int64(len(b.text)) }
