package flowcontrol

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ratio is a histogram over time of a number that is at each moment: its counts
// are nanoseconds.
type ratio struct {
	desc   *prometheus.Desc
	labels []string
	bounds []float64
	now    func() time.Time

	mu     sync.Mutex
	last   time.Time
	x      float64
	counts []uint64 // up to a bound, not cumulative; the last one beyond all
	sum    float64
}

func newRatio(desc *prometheus.Desc, bounds []float64, now func() time.Time, labels ...string) *ratio {
	return &ratio{desc: desc, labels: labels, bounds: bounds, now: now, last: now(), counts: make([]uint64, len(bounds)+1)}
}

func (r *ratio) set(now time.Time, x float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pass(now)
	r.x = x
}

func (r *ratio) add(now time.Time, d float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pass(now)
	r.x += d
}

// pass counts the time since the last change. The caller holds mu.
func (r *ratio) pass(now time.Time) {
	d := now.Sub(r.last)
	if d <= 0 {
		return
	}
	i := 0
	for i < len(r.bounds) && r.x > r.bounds[i] {
		i++
	}
	r.counts[i] += uint64(d)
	r.sum += r.x * float64(d)
	r.last = now
}

func (r *ratio) collect(ch chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pass(r.now())
	buckets, total := make(map[float64]uint64, len(r.bounds)), uint64(0)
	for i, b := range r.bounds {
		total += r.counts[i]
		buckets[b] = total
	}
	ch <- prometheus.MustNewConstHistogram(r.desc, total+r.counts[len(r.bounds)], r.sum, buckets, r.labels...)
}
