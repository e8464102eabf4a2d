package metrics_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/serving/metrics"
)

// TestDeleteResetsMetrics checks that a DELETE resets counters and histograms with labels, and
// nothing else.
func TestDeleteResetsMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	counts := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "counts"}, []string{"of"})
	times := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "times", Buckets: []float64{1, 10}}, []string{"of"})
	gauges := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "gauges"}, []string{"of"})
	total := prometheus.NewCounter(prometheus.CounterOpts{Name: "total"})
	registry.MustRegister(counts, times, gauges, total)
	h := metrics.HandlerWithReset(registry, slog.New(slog.DiscardHandler))
	sendRequest := func(method string) string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, "/metrics", nil))
		return w.Body.String()
	}
	check := func(when string, want ...string) {
		t.Helper()
		var got []string
		for line := range strings.Lines(sendRequest(http.MethodGet)) {
			if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") {
				got = append(got, line)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", when, got, want)
		}
	}
	counts.WithLabelValues("a").Add(2)
	counts.WithLabelValues("b").Add(3)
	times.WithLabelValues("a").Observe(5)
	gauges.WithLabelValues("a").Set(7)
	total.Inc()
	check("before", `counts{of="a"} 2`, `counts{of="b"} 3`, `gauges{of="a"} 7`, `times_bucket{of="a",le="1"} 0`,
		`times_bucket{of="a",le="10"} 1`,
		`times_bucket{of="a",le="+Inf"} 1`, `times_sum{of="a"} 5`, `times_count{of="a"} 1`, "total 1")
	if got, want := sendRequest(http.MethodDelete), "metrics reset\n"; got != want {
		t.Errorf("DELETE: got %q, want %q", got, want)
	}
	check("after", `gauges{of="a"} 7`, "total 1")
	counts.DeleteLabelValues("b")
	counts.WithLabelValues("a").Inc()
	counts.WithLabelValues("b").Inc() // a new series
	times.WithLabelValues("a").Observe(0.5)
	check("later", `counts{of="a"} 1`, `counts{of="b"} 1`, `gauges{of="a"} 7`, `times_bucket{of="a",le="1"} 1`,
		`times_bucket{of="a",le="10"} 1`,
		`times_bucket{of="a",le="+Inf"} 1`, `times_sum{of="a"} 0.5`, `times_count{of="a"} 1`, "total 1")
}
