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
	// freeDictionaries is the number of largest dictionaries that may be in use regardless of the
	// total size of the values.
	freeDictionaries = 4
	// bytesPerDictionary is the total size of values in bytes that allows one more dictionary.
	bytesPerDictionary = 16 << 20
	// maxIdleCompactions is the number of calls of Compact without new sequences after which the
	// text of recent values is discarded.
	maxIdleCompactions = 20
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
	// blocked reports that a new dictionary is needed but the limit of dictionaries is reached.
	blocked bool
}

// bufferPool holds buffers for compressed values.
var bufferPool = sync.Pool{New: func() any { return new([]byte) }}

// Pack returns a compressed value and its dictionary, or no dictionary if compressing does not pay.
// totalSize is the total size in bytes of all values, which limits the size of the dictionaries.
func (p *Pool) Pack(value []byte, totalSize int64) ([]byte, *Dictionary) {
	if len(value) < minValue {
		return nil, nil
	}
	shared := p.current.Load()
	if shared == nil {
		if totalSize < worthDictionary {
			return nil, nil
		}
		shared = p.createFirst()
	}
	buf, _ := bufferPool.Get().(*[]byte)
	defer bufferPool.Put(buf)
	packed, own := shared.compress((*buf)[:0], value)
	if cap(packed) <= maxScratch {
		*buf = packed[:0]
	}
	if own > len(value)/learnFrom {
		p.learn(value, totalSize)
	}
	if len(packed) > len(value)*3/4 {
		return nil, nil
	}
	return slices.Clone(packed), shared.dict
}

// maxScratch is the maximum size in bytes of a buffer that is returned to the pool.
const maxScratch = 256 << 10

// createFirst creates the first dictionary.
func (p *Pool) createFirst() *index {
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
func (p *Pool) indexFor(sequence int, totalSize int64) *index {
	newest := p.current.Load()
	if newest == nil || newest.free() >= sequence {
		return newest
	}
	size := len(newest.dict.text)
	if size*growth <= maxDictionary && totalSize >= worthOf(size*growth) {
		larger := newIndex(size*growth, indexDistance)
		larger.add(newest.dict.text[:newest.dict.used.Load()])
		p.current.Store(larger)
		return larger
	}
	p.leftOut += sequence
	if p.leftOut < size/2 { // too few bytes were left out to justify a new dictionary
		return nil
	}
	p.full = slices.DeleteFunc(p.full, func(d weak.Pointer[Dictionary]) bool { return d.Value() == nil })
	dicts := len(p.full) + 2 // with the current and the new one
	tooMany := totalSize < worthOf(dicts*size) || int64(dicts-freeDictionaries)*bytesPerDictionary > totalSize
	if dicts > 2 && tooMany {
		p.blocked = true
		return nil
	}
	p.leftOut = 0
	p.full = append(p.full, weak.Make(newest.dict))
	p.current.Store(newIndex(size, indexDistance))
	return p.current.Load()
}

// Compact frees memory that is no longer needed for values of the given total size. It returns the
// dictionaries that prevent a new one. A dictionary is freed once no value is compressed with it.
func (p *Pool) Compact(totalSize int64) (blocking []*Dictionary) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idleCompactions++
	if p.found > 0 {
		p.found = 0
		p.idleCompactions = 0
	}
	if p.idleCompactions > maxIdleCompactions {
		p.recent = nil
	}
	if x := p.current.Load(); x != nil && tooLarge(len(x.dict.text), totalSize) {
		p.current.Store(nil)
	}
	if p.blocked {
		p.blocked = false
		for _, reference := range p.full {
			if d := reference.Value(); d != nil {
				blocking = append(blocking, d)
			}
		}
	}
	return blocking
}

// tooLarge reports whether a dictionary is much larger than values of the given total size justify.
func tooLarge(dictionary int, totalSize int64) bool {
	if totalSize < worthDictionary/2 {
		return true
	}
	return dictionary > minDictionary && totalSize < worthOf(dictionary)/2
}

// Bytes returns the memory of a dictionary in bytes.
func (d *Dictionary) Bytes() int64 { return int64(len(d.text)) }
