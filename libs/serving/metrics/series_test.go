package metrics_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/serving/metrics"
)

// TestSeriesAreBoundedAndRemovedWithTheirObject limits the series of a metric, and removes those of
// deleted objects.
func TestSeriesAreBoundedAndRemovedWithTheirObject(t *testing.T) {
	const limit = 10
	registry := prometheus.NewRegistry()
	counterVec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "c"}, []string{"name"})
	s := metrics.NewSeries(metrics.SeriesConfig[string, prometheus.Counter]{
		Limit:    limit,
		Add:      func(k string) prometheus.Counter { return counterVec.WithLabelValues(k) },
		Remove:   func(k string) { counterVec.DeleteLabelValues(k) },
		Overflow: func(string) string { return "other" },
	})
	s.MustRegister(registry, counterVec)
	// series returns the number of series and the sum of their values.
	series := func() (values int, sum float64) {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.Metric {
				values++
				sum += m.GetCounter().GetValue()
			}
		}
		return values, sum
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 100 {
				s.WithLabels(fmt.Sprint(i)).Inc()
			}
		})
	}
	wg.Wait()
	if values, sum := series(); values != limit+1 || sum != 400 {
		t.Errorf("%d series with a sum of %v, want %d and 400", values, sum, limit+1)
	}
	var live atomic.Pointer[string]
	kept := "5"
	live.Store(&kept)
	s.KeepWhile(func() func(string) bool {
		now := *live.Load()
		return func(k string) bool { return k == now }
	})
	s.WithLabels("5").Inc()
	if values, sum := series(); values != 1 || sum != 5 {
		t.Errorf("%d series with a sum of %v are left, want 1 and 5", values, sum)
	}
	// A full Series removes outdated series without a collection.
	for i := range limit {
		name := fmt.Sprint("n", i)
		live.Store(&name)
		s.WithLabels(name).Inc()
	}
	if values, _ := series(); values != 1 {
		t.Errorf("%d series are left, want 1", values)
	}
	// A request that ends after its object was deleted leaves no series.
	s.WithLabels("gone").Inc()
	if values, _ := series(); values != 1 {
		t.Errorf("%d series are left, want 1", values)
	}
}
