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
	// Default is the size of a budget where nothing says how much memory there is.
	Default = 192 << 20
	// Least is the smallest size that is derived from the runtime's limit.
	Least = 16 << 20
)

// Limit is the size of the process's budget in bytes: what is asked for, else a
// quarter of the runtime's memory limit (GOMEMLIMIT), else Default.
func Limit(asked int64) int64 {
	if asked > 0 {
		return asked
	}
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return max(limit/4, Least)
	}
	return Default
}

// Budget is the memory that all parts share.
type Budget struct {
	limit int64
	parts atomic.Pointer[[]*Part] // replaced under mu
	// mu is held while parts shrink: before whatever they take.
	mu sync.Mutex
}

// Part is what one room keeps.
type Part struct {
	name   string
	share  int64
	shrink func(bytes int64) int64
	used   atomic.Int64
}

// New makes a budget of a size in bytes. The registerer may be nil.
func New(limit int64, r prometheus.Registerer) *Budget {
	b := &Budget{limit: limit}
	b.parts.Store(&[]*Part{})
	if r != nil {
		r.MustRegister(b)
	}
	return b
}

// Limit is the size of the budget.
func (b *Budget) Limit() int64 { return b.limit }

// Most is how much history may take, and how much all caches may: each leaves the
// other a third.
func (b *Budget) Most() int64 { return b.limit / 3 * 2 }

// History takes a part that comes before the caches and is not told to shrink.
func (b *Budget) History(name string) *Part { return b.add(&Part{name: name}) }

// Cache takes a part. Its share, of the sum of all shares, is what it gives way
// to last. shrink frees at least so many bytes where it can, and returns how many
// it freed, which it has counted by Add.
func (b *Budget) Cache(name string, share int64, shrink func(bytes int64) int64) *Part {
	return b.add(&Part{name: name, share: share, shrink: shrink})
}

func (b *Budget) add(p *Part) *Part {
	b.mu.Lock()
	defer b.mu.Unlock()
	parts := append(slices.Clone(*b.parts.Load()), p)
	b.parts.Store(&parts)
	return p
}

// Add counts bytes that are kept from now on, or no more.
func (p *Part) Add(bytes int64) { p.used.Add(bytes) }

// Used is what the part keeps, in bytes.
func (p *Part) Used() int64 { return p.used.Load() }

// over is by how much the parts exceed the budget.
func (b *Budget) over() int64 {
	var history, caches int64
	for _, p := range *b.parts.Load() {
		if p.shrink != nil {
			caches += p.Used()
		} else {
			history += p.Used()
		}
	}
	return max(history+caches-b.limit, caches-b.Most())
}

// Spare tells that more can be kept without anything being given up soon: of the whole,
// and of what caches may have, a quarter is free.
func (b *Budget) Spare() bool {
	var history, caches int64
	for _, p := range *b.parts.Load() {
		if p.shrink != nil {
			caches += p.Used()
		} else {
			history += p.Used()
		}
	}
	return history+caches < b.limit/4*3 && caches < b.Most()/4*3
}

// Settle lets caches shrink until the budget is kept.
func (b *Budget) Settle() {
	for b.over() > 0 {
		if !b.mu.TryLock() {
			return // somebody else does
		}
		shrunk := b.shrinkParts()
		b.mu.Unlock()
		if !shrunk {
			return
		}
	}
}

// shrinkParts lets each part shrink that is beyond what it may keep. It returns false
// when nothing more can be given up. The caller holds mu.
func (b *Budget) shrinkParts() bool {
	freed := false
	level := b.level()
	for _, p := range *b.parts.Load() {
		if p.shrink == nil {
			continue
		}
		if beyond := p.Used() - int64(level*float64(p.share)); beyond > 0 {
			freed = p.shrink(beyond) > 0 || freed
		}
	}
	return freed
}

// level is what each cache may keep per share, so that all keep the budget and
// what some do not use is there for the others.
func (b *Budget) level() float64 {
	left, shares := b.limit, int64(0)
	var open []*Part
	for _, p := range *b.parts.Load() {
		if p.shrink == nil {
			left -= p.Used()
			continue
		}
		open = append(open, p)
		shares += p.share
	}
	left = max(0, min(left, b.Most()))
	for len(open) > 0 {
		level := float64(left) / float64(shares)
		rest := slices.DeleteFunc(slices.Clone(open), func(p *Part) bool { return float64(p.Used()) <= level*float64(p.share) })
		if len(rest) == len(open) {
			return level
		}
		for _, p := range open {
			if !slices.Contains(rest, p) {
				left -= p.Used()
				shares -= p.share
			}
		}
		open = rest
	}
	return 1e15 // all fit
}

var (
	usedDesc  = prometheus.NewDesc("binnacle_cache_memory_bytes", "Memory of what the server keeps and could do without, by part.", []string{"part"}, nil)
	limitDesc = prometheus.NewDesc("binnacle_cache_memory_limit_bytes", "Memory that all parts of binnacle_cache_memory_bytes may take together.", nil, nil)
)

// Describe implements prometheus.Collector.
func (b *Budget) Describe(ch chan<- *prometheus.Desc) { ch <- usedDesc; ch <- limitDesc }

// Collect implements prometheus.Collector.
func (b *Budget) Collect(ch chan<- prometheus.Metric) {
	used, names := map[string]int64{}, []string(nil)
	for _, p := range *b.parts.Load() { // several caches have parts of the same name
		if _, ok := used[p.name]; !ok {
			names = append(names, p.name)
		}
		used[p.name] += p.Used()
	}
	for _, name := range names {
		ch <- prometheus.MustNewConstMetric(usedDesc, prometheus.GaugeValue, float64(used[name]), name)
	}
	ch <- prometheus.MustNewConstMetric(limitDesc, prometheus.GaugeValue, float64(b.limit))
}
