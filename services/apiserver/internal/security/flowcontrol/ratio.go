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

	x      float64
	counts []uint64 // up to a bound, not cumulative; the last one beyond all
	sum    float64
}

func newRatio(desc *prometheus.Desc, bounds []float64, labels ...string) ratio {
	return ratio{desc: desc, labels: labels, bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

// pass counts that some time went by.
func (r *ratio) pass(d time.Duration) {
	i := 0
	for i < len(r.bounds) && r.x > r.bounds[i] {
		i++
	}
	r.counts[i] += uint64(d)
	r.sum += r.x * float64(d)
}

// ratios change together.
type ratios struct {
	now func() time.Time

	mu   sync.Mutex // leaf
	last time.Time
	each []ratio
}

func newRatios(now func() time.Time, each ...ratio) *ratios {
	return &ratios{now: now, last: now(), each: each}
}

// set gives each its value from now on.
func (r *ratios) set(now time.Time, values ...float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pass(now)
	for i, x := range values {
		r.each[i].x = x
	}
}

// add changes one of them.
func (r *ratios) add(now time.Time, i int, d float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pass(now)
	r.each[i].x += d
}

// pass counts the time since the last change. The caller holds mu.
func (r *ratios) pass(now time.Time) {
	d := now.Sub(r.last)
	if d <= 0 {
		return
	}
	for i := range r.each {
		r.each[i].pass(d)
	}
	r.last = now
}

func (r *ratios) collect(ch chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pass(r.now())
	for i := range r.each {
		one := &r.each[i]
		buckets, total := make(map[float64]uint64, len(one.bounds)), uint64(0)
		for n, b := range one.bounds {
			total += one.counts[n]
			buckets[b] = total
		}
		ch <- prometheus.MustNewConstHistogram(one.desc, total+one.counts[len(one.bounds)], one.sum, buckets, one.labels...)
	}
}
