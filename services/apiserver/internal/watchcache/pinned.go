package watchcache

import (
	gc "runtime/metrics"
	"sync"
	"unsafe"
	"weak"
)

const (
	// pinSample is how many bytes of values leave the cache for one that is
	// followed; that one stands for all of them.
	pinSample = 64 << 10
	minPruned = 64
)

// pinned estimates the memory of versions that have left the cache and that
// somebody still holds: an answer that is being written, a watcher that does not
// read. It holds none of them itself.
type pinned struct {
	mu      sync.Mutex // a leaf
	skipped int64      // bytes that left since the last value that is followed
	left    []leftValue
	prune   int // the length at which what was collected is forgotten
}

// leftValue is a value that has left the cache.
type leftValue struct {
	value  weak.Pointer[byte]
	weight int64
	cycles uint64 // of the garbage collector, when it left
}

// leave notes that nothing in the cache refers to an entry any more.
func (p *pinned) leave(e *Entry) {
	if e == nil || len(e.stored) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.skipped += int64(len(e.stored)); p.skipped < pinSample {
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

// bytes is the memory that is held. What left during a collection may survive
// it, so only what survived the one after it counts.
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

// collections is the number of finished cycles of the garbage collector.
func collections() uint64 {
	s := []gc.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	gc.Read(s)
	if s[0].Value.Kind() != gc.KindUint64 {
		return 0
	}
	return s[0].Value.Uint64()
}
