package objects

import (
	runtimemetrics "runtime/metrics"
	"sync"
	"unsafe"
	"weak"
)

const (
	// bytesPerSample is the number of bytes of values that leave the cache per tracked value. The
	// tracked value stands for all of them.
	bytesPerSample = 64 << 10
	// minPruned is the minimum number of tracked values at which collected ones are removed.
	minPruned = 64
)

// PinnedValues estimates the memory of values that left the cache and are still referenced: by a
// response that is being written, or by a watcher that does not read. It keeps none of them alive.
type PinnedValues struct {
	mu      sync.Mutex // leaf lock
	skipped int64      // bytes that left since the last tracked value
	samples []departedValue
	pruneAt int // the number of samples at which collected values are removed
}

// departedValue is a tracked value that left the cache.
type departedValue struct {
	value  weak.Pointer[byte]
	bytes  int64  // that it stands for
	cycles uint64 // completed garbage collections when it left
}

// Add records that the cache does not refer to an entry any more. The entry may be nil.
func (p *PinnedValues) Add(entry *Entry) {
	if entry == nil || len(entry.stored) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.skipped += int64(len(entry.stored))
	if p.skipped < bytesPerSample {
		return
	}
	if len(p.samples) >= max(p.pruneAt, minPruned) {
		p.removeCollected()
		p.pruneAt = 2 * len(p.samples)
	}
	p.samples = append(p.samples, departedValue{weak.Make(unsafe.StringData(entry.stored)), p.skipped, completedCollections()})
	p.skipped = 0
}

// removeCollected removes the values that the garbage collector has freed. The caller holds mu.
func (p *PinnedValues) removeCollected() {
	remaining := p.samples[:0]
	for _, sample := range p.samples {
		if sample.value.Value() != nil {
			remaining = append(remaining, sample)
		}
	}
	clear(p.samples[len(remaining):])
	p.samples = remaining
}

// Bytes returns the estimated memory. A value that left during a collection may survive it, so it
// counts only if it survives the next one.
func (p *PinnedValues) Bytes() (total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removeCollected()
	now := completedCollections()
	for _, sample := range p.samples {
		if now >= sample.cycles+2 {
			total += sample.bytes
		}
	}
	return total
}

// completedCollections returns the number of completed garbage collections.
func completedCollections() uint64 {
	samples := []runtimemetrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	runtimemetrics.Read(samples)
	if samples[0].Value.Kind() != runtimemetrics.KindUint64 {
		return 0
	}
	return samples[0].Value.Uint64()
}
