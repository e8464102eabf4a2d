package metrics

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// SeriesConfig configures the label sets of related vectors.
type SeriesConfig[K comparable, V any] struct {
	// Limit is the largest number of label sets, not counting those of Overflow.
	Limit int
	// Add returns the children of the vectors for a key. Remove deletes them. Neither may call the
	// Series.
	Add    func(K) V
	Remove func(K)
	// Overflow returns the key to use for a key beyond the limit. It must return few distinct keys.
	Overflow func(K) K
}

// Series caches the children of vectors by key, because looking up labels costs more than counting.
// It limits their number, and removes those whose key names an object that no longer exists (see
// KeepWhile). A removed series that is used again starts at zero. Its methods are safe for
// concurrent use.
type Series[K comparable, V any] struct {
	config   SeriesConfig[K, V]
	live     atomic.Pointer[func() func(K) bool]
	children sync.Map // K → V; changed with mu

	mu        sync.Mutex // leaf lock, except for the callbacks
	count     int
	lastSweep time.Time // last sweep because of the limit
}

// NewSeries returns an empty Series.
func NewSeries[K comparable, V any](c SeriesConfig[K, V]) *Series[K, V] {
	return &Series[K, V]{config: c}
}

// KeepWhile sets the function that decides which series remain. live is called before each
// collection. It returns a function that reports whether the object named by a key exists. Before
// the first call of KeepWhile, all series remain.
func (s *Series[K, V]) KeepWhile(live func() func(K) bool) { s.live.Store(&live) }

// WithLabels returns the children for a key.
func (s *Series[K, V]) WithLabels(k K) V {
	if v, ok := s.children.Load(k); ok {
		return v.(V)
	}
	if s.isFull() {
		s.sweepFull()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.children.Load(k); ok {
		return v.(V)
	}
	if s.count >= s.config.Limit {
		k = s.config.Overflow(k)
		if v, ok := s.children.Load(k); ok {
			return v.(V)
		}
	}
	v := s.config.Add(k)
	s.children.Store(k, v)
	s.count++
	return v
}

func (s *Series[K, V]) isFull() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count >= s.config.Limit
}

// sweepPause is the shortest time between sweeps of a full Series.
const sweepPause = time.Second

// sweepFull removes outdated series of a full Series, at most once per sweepPause.
func (s *Series[K, V]) sweepFull() {
	s.mu.Lock()
	due := s.live.Load() != nil && time.Since(s.lastSweep) >= sweepPause
	if due {
		s.lastSweep = time.Now()
	}
	s.mu.Unlock()
	if due {
		s.sweep()
	}
}

// sweep removes the series of objects that no longer exist.
func (s *Series[K, V]) sweep() {
	newLive := s.live.Load()
	if newLive == nil {
		return
	}
	live := (*newLive)() // may take locks
	s.mu.Lock()
	defer s.mu.Unlock()
	s.children.Range(func(key, _ any) bool {
		if k := key.(K); !live(k) {
			s.children.Delete(k)
			s.config.Remove(k)
			s.count--
		}
		return true
	})
}

// Register registers vectors, and removes outdated series before each collection.
func (s *Series[K, V]) Register(r prometheus.Registerer, vectors ...prometheus.Collector) error {
	for _, v := range vectors {
		if err := r.Register(sweepingCollector{v, s.sweep}); err != nil {
			return err
		}
	}
	return nil
}

// MustRegister registers collectors like Register, and panics on an error.
func (s *Series[K, V]) MustRegister(r prometheus.Registerer, vectors ...prometheus.Collector) {
	if err := s.Register(r, vectors...); err != nil {
		panic(err)
	}
}

// sweepingCollector removes outdated series before it collects.
type sweepingCollector struct {
	prometheus.Collector
	sweep func()
}

// Collect implements prometheus.Collector.
func (c sweepingCollector) Collect(ch chan<- prometheus.Metric) {
	c.sweep()
	c.Collector.Collect(ch)
}
