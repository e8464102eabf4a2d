package metrics

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// SeriesConfig describes the label sets of one or more vectors that belong together.
type SeriesConfig[K comparable, V any] struct {
	// Limit is how many label sets there are at most, besides those of Overflow.
	Limit int
	// Add returns the children of the vectors for a key; Remove deletes them. Neither
	// may call the Series.
	Add    func(K) V
	Remove func(K)
	// Overflow returns the key that stands for a key beyond the limit. It returns few
	// different ones.
	Overflow func(K) K
}

// Series keeps the children of vectors by key. Looking up labels costs more than
// counting. It bounds how many there are, and removes those whose key names an object
// that is gone (see KeepWhile). A removed series that is used again starts at zero. Its
// methods are safe for concurrent use.
type Series[K comparable, V any] struct {
	config SeriesConfig[K, V]
	live   atomic.Pointer[func() func(K) bool]
	kept   sync.Map // K → V; changed with mu

	mu    sync.Mutex // a leaf, except for the callbacks
	count int
	swept time.Time // because of the limit
}

// NewSeries returns a Series without any children.
func NewSeries[K comparable, V any](c SeriesConfig[K, V]) *Series[K, V] {
	return &Series[K, V]{config: c}
}

// KeepWhile sets what decides which series stay. live is called before each collection
// and returns whether the object that a key names still exists. All stay before the first call.
func (s *Series[K, V]) KeepWhile(live func() func(K) bool) { s.live.Store(&live) }

// Of returns the children for a key.
func (s *Series[K, V]) Of(k K) V {
	if v, ok := s.kept.Load(k); ok {
		return v.(V)
	}
	if s.full() {
		s.sweepFull()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.kept.Load(k); ok {
		return v.(V)
	}
	if s.count >= s.config.Limit {
		k = s.config.Overflow(k)
		if v, ok := s.kept.Load(k); ok {
			return v.(V)
		}
	}
	v := s.config.Add(k)
	s.kept.Store(k, v)
	s.count++
	return v
}

func (s *Series[K, V]) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count >= s.config.Limit
}

// sweepPause is how long a full Series waits before it looks again for series to remove.
const sweepPause = time.Second

func (s *Series[K, V]) sweepFull() {
	s.mu.Lock()
	due := s.live.Load() != nil && time.Since(s.swept) >= sweepPause
	if due {
		s.swept = time.Now()
	}
	s.mu.Unlock()
	if due {
		s.sweep()
	}
}

// sweep removes the series of objects that are gone.
func (s *Series[K, V]) sweep() {
	of := s.live.Load()
	if of == nil {
		return
	}
	live := (*of)() // may take locks
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept.Range(func(key, _ any) bool {
		if k := key.(K); !live(k) {
			s.kept.Delete(k)
			s.config.Remove(k)
			s.count--
		}
		return true
	})
}

// Register registers vectors whose series are removed before they are collected.
func (s *Series[K, V]) Register(r prometheus.Registerer, vectors ...prometheus.Collector) error {
	for _, v := range vectors {
		if err := r.Register(swept{v, s.sweep}); err != nil {
			return err
		}
	}
	return nil
}

// MustRegister is Register and panics on an error.
func (s *Series[K, V]) MustRegister(r prometheus.Registerer, vectors ...prometheus.Collector) {
	if err := s.Register(r, vectors...); err != nil {
		panic(err)
	}
}

// swept is a collector that sweeps first.
type swept struct {
	prometheus.Collector
	sweep func()
}

// Collect implements prometheus.Collector.
func (c swept) Collect(ch chan<- prometheus.Metric) {
	c.sweep()
	c.Collector.Collect(ch)
}
