package valuedict

import (
	"slices"
	"sync"
	"sync/atomic"
	"weak"
)

const (
	// minDictionary and maxDictionary are the smallest and largest dictionary size in bytes.
	minDictionary = 16 << 10
	maxDictionary = 256 << 10
	// growth is the factor between successive dictionary sizes.
	growth = 4
	// freeDictionaries is the number of dictionaries of the largest size that values of any total
	// size may use at a time.
	freeDictionaries = 4
	// bytesPerDictionary is the number of bytes of values for each additional dictionary.
	bytesPerDictionary = 16 << 20
	// idleCompactions is the number of calls of Compact without new sequences after which the text of
	// recent values is discarded.
	idleCompactions = 20
	// indexDistance is the distance of the indexed positions in a dictionary. Sequences are longer.
	indexDistance = 4
)

// Pool compresses values of one type. Its zero value has no dictionary yet. It is safe for
// concurrent use, and must not be copied.
type Pool struct {
	current atomic.Pointer[index]
	// pause is how many more badly compressed values are skipped by learn.
	pause atomic.Int64

	mu sync.Mutex
	learner
	// full holds the dictionaries that were followed by an empty one.
	full []weak.Pointer[Dictionary]
	// crowded reports that a new dictionary is needed but the limit of dictionaries is reached.
	crowded bool
}

// scratch holds buffers for compressed values.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

// Pack returns a compressed value and its dictionary, or no dictionary if compressing does not
// pay. all is the total size in bytes of all values, which limits the size of the dictionaries.
func (p *Pool) Pack(value []byte, all int64) ([]byte, *Dictionary) {
	if len(value) < minValue {
		return nil, nil
	}
	x := p.current.Load()
	if x == nil {
		if all < worthDictionary {
			return nil, nil
		}
		x = p.begin()
	}
	buf, _ := scratch.Get().(*[]byte)
	defer scratch.Put(buf)
	packed, own := x.pack((*buf)[:0], value)
	if cap(packed) <= maxScratch {
		*buf = packed[:0]
	}
	if own > len(value)/learnFrom {
		p.learn(value, all)
	}
	if len(packed) > len(value)*3/4 {
		return nil, nil
	}
	return slices.Clone(packed), x.dict
}

// maxScratch is the maximum size in bytes of a buffer that is returned to the pool.
const maxScratch = 256 << 10

// begin creates the first dictionary.
func (p *Pool) begin() *index {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.current.Load()
	if x == nil {
		x = newIndex(minDictionary, indexDistance)
		p.current.Store(x)
	}
	return x
}

// indexFor returns the index of a dictionary with room for a sequence, which may be a new one. It
// returns nil if no new dictionary is allowed. The caller holds mu.
func (p *Pool) indexFor(sequence int, all int64) *index {
	x := p.current.Load()
	if x == nil || x.free() >= sequence {
		return x
	}
	size := len(x.dict.text)
	if size*growth <= maxDictionary && all >= worthOf(size*growth) {
		larger := newIndex(size*growth, indexDistance)
		larger.add(x.dict.text[:x.dict.used.Load()])
		p.current.Store(larger)
		return larger
	}
	p.left += sequence
	if p.left < size/2 { // too few bytes were left out to justify a new dictionary
		return nil
	}
	p.full = slices.DeleteFunc(p.full, func(d weak.Pointer[Dictionary]) bool { return d.Value() == nil })
	dicts := len(p.full) + 2 // with the current and the new one
	tooMany := all < worthOf(dicts*size) || int64(dicts-freeDictionaries)*bytesPerDictionary > all
	if dicts > 2 && tooMany {
		p.crowded = true
		return nil
	}
	p.left = 0
	p.full = append(p.full, weak.Make(x.dict))
	p.current.Store(newIndex(size, indexDistance))
	return p.current.Load()
}

// Compact frees memory that is no longer needed for values of the given total size. It returns the
// dictionaries that prevent a new one. A dictionary is freed once no value is compressed with it.
func (p *Pool) Compact(all int64) (crowd []*Dictionary) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle++
	if p.found > 0 {
		p.found = 0
		p.idle = 0
	}
	if p.idle > idleCompactions {
		p.recent = nil
	}
	if x := p.current.Load(); x != nil && tooLarge(len(x.dict.text), all) {
		p.current.Store(nil)
	}
	if p.crowded {
		p.crowded = false
		for _, reference := range p.full {
			if d := reference.Value(); d != nil {
				crowd = append(crowd, d)
			}
		}
	}
	return crowd
}

// tooLarge reports whether a dictionary is much larger than values of the given total size justify.
func tooLarge(dictionary int, all int64) bool {
	if all < worthDictionary/2 {
		return true
	}
	return dictionary > minDictionary && all < worthOf(dictionary)/2
}

// Bytes returns the memory of a dictionary in bytes.
func (d *Dictionary) Bytes() int64 { return int64(len(d.text)) }
