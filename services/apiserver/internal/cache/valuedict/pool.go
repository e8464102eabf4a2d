package valuedict

import (
	"slices"
	"sync"
	"sync/atomic"
	"weak"
)

const (
	// minDictionary and maxDictionary are the smallest and largest dictionary size in bytes. growth
	// is the factor between sizes.
	minDictionary, maxDictionary, growth = 16 << 10, 256 << 10, 4
	// freeDictionaries is the number of largest dictionaries allowed at a time. bytesPerDictionary
	// is the number of bytes of values for each additional dictionary.
	freeDictionaries, bytesPerDictionary = 4, 16 << 20
	// idleCompactions is the number of calls of Compact without new phrases after which the text of
	// recent values is discarded.
	idleCompactions = 20
	// every is the distance of the indexed positions in a dictionary. Phrases are longer.
	every = 4
)

// Pool packs values of one type. Its zero value has no dictionary yet. It is safe for concurrent
// use, and must not be copied.
type Pool struct {
	current atomic.Pointer[index]
	// pause is how many more badly packed values are skipped by learn.
	pause atomic.Int64

	mu sync.Mutex
	learner
	// full holds the dictionaries that were followed by an empty one.
	full []weak.Pointer[Dictionary]
	// crowded reports that a new dictionary is needed but the limit of dictionaries is reached.
	crowded bool
}

var scratch = sync.Pool{New: func() any { return new([]byte) }}

// Pack returns a packed value and its dictionary, or no dictionary if packing does not pay. all is
// the total size in bytes of all values, which limits the size of the dictionaries.
func (s *Pool) Pack(value []byte, all int64) ([]byte, *Dictionary) {
	if len(value) < minValue {
		return nil, nil
	}
	x := s.current.Load()
	if x == nil {
		if all < worthDictionary {
			return nil, nil
		}
		x = s.begin()
	}
	buf, _ := scratch.Get().(*[]byte)
	defer scratch.Put(buf)
	packed, own := x.pack((*buf)[:0], value)
	if cap(packed) <= maxScratch {
		*buf = packed[:0]
	}
	if own > len(value)/learnFrom {
		s.learn(value, all)
	}
	if len(packed) > len(value)*3/4 {
		return nil, nil
	}
	return slices.Clone(packed), x.dict
}

// maxScratch is the maximum size in bytes of a buffer that is returned to the pool.
const maxScratch = 256 << 10

// begin creates the first dictionary.
func (s *Pool) begin() *index {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.current.Load()
	if x == nil {
		x = newIndex(minDictionary, every)
		s.current.Store(x)
	}
	return x
}

// indexFor returns the index of a dictionary with room for a phrase, which may be a new one. It
// returns nil if no new dictionary is allowed. The caller holds mu.
func (s *Pool) indexFor(phrase int, all int64) *index {
	x := s.current.Load()
	if x == nil || x.free() >= phrase {
		return x
	}
	size := len(x.dict.text)
	if size*growth <= maxDictionary && all >= worthOf(size*growth) {
		larger := newIndex(size*growth, every)
		larger.add(x.dict.text[:x.dict.used.Load()])
		s.current.Store(larger)
		return larger
	}
	s.left += phrase
	if s.left < size/2 { // too few bytes lost to justify a new dictionary
		return nil
	}
	s.full = slices.DeleteFunc(s.full, func(b weak.Pointer[Dictionary]) bool { return b.Value() == nil })
	dicts := len(s.full) + 2
	if dicts > 2 && (all < worthOf(dicts*size) || int64(dicts-freeDictionaries)*bytesPerDictionary > all) {
		s.crowded = true
		return nil
	}
	s.left = 0
	s.full = append(s.full, weak.Make(x.dict))
	s.current.Store(newIndex(size, every))
	return s.current.Load()
}

// Compact frees memory that is no longer needed for values of the given total size. It returns the
// dictionaries that prevent a new one. A dictionary is freed once no value is packed with it.
func (s *Pool) Compact(all int64) (crowd []*Dictionary) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle++
	if s.found > 0 {
		s.found, s.idle = 0, 0
	}
	if s.idle > idleCompactions {
		s.recent = nil
	}
	if x := s.current.Load(); x != nil &&
		(all < worthOf(len(x.dict.text))/2 && len(x.dict.text) > minDictionary || all < worthDictionary/2) {
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

// Bytes returns the memory of a dictionary in bytes.
func (b *Dictionary) Bytes() int64 { return int64(len(b.text)) }
