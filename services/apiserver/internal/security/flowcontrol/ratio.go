package flowcontrol

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// timeRatio is a histogram of how long a value had which size. Its counts are nanoseconds.
type timeRatio struct {
	desc   *prometheus.Desc
	labels []string
	bounds []float64

	value  float64
	counts []uint64 // per bucket, not cumulative; the last one is above all bounds
	total  float64
}

func newTimeRatio(desc *prometheus.Desc, bounds []float64, labels ...string) timeRatio {
	return timeRatio{desc: desc, labels: labels, bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

// addTime adds d to the bucket of the current value.
func (r *timeRatio) addTime(d time.Duration) {
	i := 0
	for i < len(r.bounds) && r.value > r.bounds[i] {
		i++
	}
	r.counts[i] += uint64(d)
	r.total += r.value * float64(d)
}

// ratioGroup is a group of histograms that advance together.
type ratioGroup struct {
	now func() time.Time

	mu      sync.Mutex // leaf lock
	last    time.Time
	members []timeRatio
}

func newRatioGroup(now func() time.Time, each ...timeRatio) *ratioGroup {
	return &ratioGroup{now: now, last: now(), members: each}
}

// setValues sets the values from now on.
func (r *ratioGroup) setValues(now time.Time, values ...float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advanceTo(now)
	for i, value := range values {
		r.members[i].value = value
	}
}

// addToValue adds d to the value at index i.
func (r *ratioGroup) addToValue(now time.Time, i int, d float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advanceTo(now)
	r.members[i].value += d
}

// advanceTo counts the time since the last change. The caller holds mu.
func (r *ratioGroup) advanceTo(now time.Time) {
	d := now.Sub(r.last)
	if d <= 0 {
		return
	}
	for i := range r.members {
		r.members[i].addTime(d)
	}
	r.last = now
}

// collectRatios sends the histograms up to now.
func (r *ratioGroup) collectRatios(ch chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advanceTo(r.now())
	for i := range r.members {
		one := &r.members[i]
		buckets := make(map[float64]uint64, len(one.bounds))
		total := uint64(0)
		for bucket, b := range one.bounds {
			total += one.counts[bucket]
			buckets[b] = total
		}
		ch <- prometheus.MustNewConstHistogram(one.desc, total+one.counts[len(one.bounds)], one.total, buckets, one.labels...)
	}
}
