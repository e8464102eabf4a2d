package watchcache

import (
	gc "runtime/metrics"
	"sync"
	"unsafe"
	"weak"
)

const (
	// pinSample is the number of bytes of values that leave the cache per tracked value. The
	// tracked value stands for all of them.
	pinSample = 64 << 10
	minPruned = 64
)

// pinned estimates the memory of versions that left the cache and are still referenced: by a
// response that is being written, or by a watcher that does not read. It keeps none of them alive.
type pinned struct {
	mu      sync.Mutex // a leaf lock
	skipped int64      // bytes that left since the last tracked value
	left    []leftValue
	prune   int // the length at which collected values are removed
}

// leftValue is a value that left the cache.
type leftValue struct {
	value  weak.Pointer[byte]
	weight int64
	cycles uint64 // garbage collection cycles when it left
}

// leave records that the cache does not refer to an entry any more.
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

// bytes returns the estimated memory. A value that left during a collection may survive it, so it
// counts only if it survives the next one.
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

// collections returns the number of completed garbage collection cycles.
func collections() uint64 {
	s := []gc.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	gc.Read(s)
	if s[0].Value.Kind() != gc.KindUint64 {
		return 0
	}
	return s[0].Value.Uint64()
}
