package memory

import (
	"math"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// Default is the budget in bytes without a configured size or memory limit.
	Default = 192 << 20
	// Least is the minimum budget in bytes that is derived from the runtime's limit.
	Least = 16 << 20
)

// Limit returns the budget of the process in bytes: configured if it is positive, otherwise a
// quarter of the runtime's memory limit (GOMEMLIMIT), otherwise Default.
func Limit(configured int64) int64 {
	if configured > 0 {
		return configured
	}
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return max(limit/4, Least)
	}
	return Default
}

// Budget is the memory that all parts share. It is safe for concurrent use.
type Budget struct {
	limit int64
	parts atomic.Pointer[[]*Quota] // replaced under mu
	// mu is held while parts shrink. It is acquired before the locks of their shrink functions.
	mu sync.Mutex
}

// Quota is the part of one package in the budget, and counts its bytes.
type Quota struct {
	name   string
	share  int64
	shrink func(bytes int64) int64
	used   atomic.Int64
}

// New returns a budget of limit bytes. The registerer may be nil.
func New(limit int64, r prometheus.Registerer) *Budget {
	b := &Budget{limit: limit}
	b.parts.Store(&[]*Quota{})
	if r != nil {
		r.MustRegister(b)
	}
	return b
}

// Limit returns the size of the budget in bytes.
func (b *Budget) Limit() int64 { return b.limit }

// PartLimit returns the maximum of all history, and of all caches, in bytes: each leaves a third to
// the other.
func (b *Budget) PartLimit() int64 { return b.limit / 3 * 2 }

// History registers a part that has priority over caches and never shrinks.
func (b *Budget) History(name string) *Quota { return b.register(&Quota{name: name}) }

// Cache registers a part. share is its weight relative to the sum of all shares; a part does not
// shrink below its share. shrink frees at least the given number of bytes if possible, counts them
// with Add, and returns how many it freed.
func (b *Budget) Cache(name string, share int64, shrink func(bytes int64) int64) *Quota {
	return b.register(&Quota{name: name, share: share, shrink: shrink})
}

// register adds a part to the budget.
func (b *Budget) register(q *Quota) *Quota {
	b.mu.Lock()
	defer b.mu.Unlock()
	parts := append(slices.Clone(*b.parts.Load()), q)
	b.parts.Store(&parts)
	return q
}

// Add counts bytes that are kept; negative for freed bytes.
func (q *Quota) Add(bytes int64) { q.used.Add(bytes) }

// Used returns the counted bytes.
func (q *Quota) Used() int64 { return q.used.Load() }

// used returns the bytes of all history and those of all caches.
func (b *Budget) used() (history, caches int64) {
	for _, p := range *b.parts.Load() {
		if p.shrink != nil {
			caches += p.Used()
		} else {
			history += p.Used()
		}
	}
	return history, caches
}

// excess returns by how many bytes the parts exceed the budget.
func (b *Budget) excess() int64 {
	history, caches := b.used()
	return max(history+caches-b.limit, caches-b.PartLimit())
}

// HasHeadroom reports whether more can be kept without eviction soon: a quarter of the budget, and
// of the caches' part of it, is free.
func (b *Budget) HasHeadroom() bool {
	history, caches := b.used()
	return history+caches < b.limit/4*3 && caches < b.PartLimit()/4*3
}

// EvictToFit shrinks caches until they fit the budget.
func (b *Budget) EvictToFit() {
	for b.excess() > 0 {
		if !b.mu.TryLock() {
			return // another goroutine does it
		}
		shrunk := b.shrinkParts()
		b.mu.Unlock()
		if !shrunk {
			return
		}
	}
}

// shrinkParts shrinks each part that exceeds its limit. It returns false if no part freed any
// memory. The caller holds mu.
func (b *Budget) shrinkParts() bool {
	freed := false
	perShare := b.bytesPerShare()
	for _, p := range *b.parts.Load() {
		if p.shrink == nil {
			continue
		}
		excess := p.Used() - int64(perShare*float64(p.share))
		if excess > 0 && p.shrink(excess) > 0 {
			freed = true
		}
	}
	return freed
}

// bytesPerShare returns the bytes that each cache may keep per share, so that all caches fit the
// budget and memory that some do not use is available to the others.
func (b *Budget) bytesPerShare() float64 {
	remaining := b.limit
	shares := int64(0)
	var unsatisfied []*Quota // caches that may use more than an equal share allows
	for _, p := range *b.parts.Load() {
		if p.shrink == nil {
			remaining -= p.Used()
			continue
		}
		unsatisfied = append(unsatisfied, p)
		shares += p.share
	}
	remaining = max(0, min(remaining, b.PartLimit()))
	// Each round takes out the caches that use less than an equal share, so the others get more.
	for len(unsatisfied) > 0 {
		perShare := float64(remaining) / float64(shares)
		var larger []*Quota
		for _, p := range unsatisfied {
			if float64(p.Used()) > perShare*float64(p.share) {
				larger = append(larger, p)
			}
		}
		if len(larger) == len(unsatisfied) {
			return perShare
		}
		for _, p := range unsatisfied {
			if !slices.Contains(larger, p) {
				remaining -= p.Used()
				shares -= p.share
			}
		}
		unsatisfied = larger
	}
	return 1e15 // all caches fit
}

var (
	usedDesc = prometheus.NewDesc("binnacle_cache_memory_bytes",
		"Memory in bytes of the server's caches, by part.", []string{"part"}, nil)
	limitDesc = prometheus.NewDesc("binnacle_cache_memory_limit_bytes",
		"Limit in bytes of the sum of binnacle_cache_memory_bytes.", nil, nil)
)

// Describe implements prometheus.Collector.
func (b *Budget) Describe(ch chan<- *prometheus.Desc) { ch <- usedDesc; ch <- limitDesc }

// Collect implements prometheus.Collector.
func (b *Budget) Collect(out chan<- prometheus.Metric) {
	used := map[string]int64{}
	names := []string(nil)
	for _, p := range *b.parts.Load() { // several caches may use the same name
		if _, ok := used[p.name]; !ok {
			names = append(names, p.name)
		}
		used[p.name] += p.Used()
	}
	for _, name := range names {
		out <- prometheus.MustNewConstMetric(usedDesc, prometheus.GaugeValue, float64(used[name]), name)
	}
	out <- prometheus.MustNewConstMetric(limitDesc, prometheus.GaugeValue, float64(b.limit))
}
