package flowcontrol

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ratio is a histogram of a value over time. Its counts are nanoseconds.
type ratio struct {
	desc   *prometheus.Desc
	labels []string
	bounds []float64

	value  float64
	counts []uint64 // per bucket, not cumulative; the last one is above all bounds
	sum    float64
}

func newRatio(desc *prometheus.Desc, bounds []float64, labels ...string) ratio {
	return ratio{desc: desc, labels: labels, bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

// advance adds d to the bucket of the current value.
func (r *ratio) advance(d time.Duration) {
	i := 0
	for i < len(r.bounds) && r.value > r.bounds[i] {
		i++
	}
	r.counts[i] += uint64(d)
	r.sum += r.value * float64(d)
}

// ratios is a group of ratios that advance together.
type ratios struct {
	now func() time.Time

	mu      sync.Mutex // leaf lock
	last    time.Time
	members []ratio
}

func newRatios(now func() time.Time, each ...ratio) *ratios {
	return &ratios{now: now, last: now(), members: each}
}

// set sets the values from now on.
func (r *ratios) set(now time.Time, values ...float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(now)
	for i, value := range values {
		r.members[i].value = value
	}
}

// add adds d to the value at index i.
func (r *ratios) add(now time.Time, i int, d float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(now)
	r.members[i].value += d
}

// advance counts the time since the last change. The caller holds mu.
func (r *ratios) advance(now time.Time) {
	d := now.Sub(r.last)
	if d <= 0 {
		return
	}
	for i := range r.members {
		r.members[i].advance(d)
	}
	r.last = now
}

func (r *ratios) collect(ch chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(r.now())
	for i := range r.members {
		one := &r.members[i]
		buckets := make(map[float64]uint64, len(one.bounds))
		total := uint64(0)
		for bucket, b := range one.bounds {
			total += one.counts[bucket]
			buckets[b] = total
		}
		ch <- prometheus.MustNewConstHistogram(one.desc, total+one.counts[len(one.bounds)], one.sum, buckets, one.labels...)
	}
}
