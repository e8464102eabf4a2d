package metrics

import (
	"io"
	"log/slog"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// HandlerWithReset returns a Handler whose metrics a DELETE resets, as in Kubernetes: series with
// labels count from zero, and are absent until they count again. Gauges keep their values, which
// describe the present. Other handlers of the gatherer are not affected.
func HandlerWithReset(gatherer prometheus.Gatherer, log *slog.Logger) http.Handler {
	r := &resettable{source: gatherer}
	serve := Handler(r, log)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodDelete {
			serve.ServeHTTP(w, req)
			return
		}
		if err := r.reset(); err != nil {
			errorLog{log}.Println(err)
		}
		_, _ = io.WriteString(w, "metrics reset\n")
	})
}

// resettable is a gatherer that subtracts what its series had counted at the last reset.
type resettable struct {
	source prometheus.Gatherer

	mu sync.RWMutex // leaf lock
	// atReset holds the series of the last reset by family and labels.
	atReset map[string]map[string]*dto.Metric
}

// reset records the current values of counters and histograms, which later reads subtract.
func (r *resettable) reset() error {
	families, err := r.source.Gather()
	base := map[string]map[string]*dto.Metric{}
	for _, metricFamily := range families {
		series := map[string]*dto.Metric{}
		for _, m := range metricFamily.Metric {
			if m.Counter != nil || m.Histogram != nil {
				series[labelKeyOf(m)] = m
			}
		}
		base[metricFamily.GetName()] = series
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.atReset = base
	return err
}

// Gather implements prometheus.Gatherer.
func (r *resettable) Gather() ([]*dto.MetricFamily, error) {
	r.mu.RLock()
	base := r.atReset
	r.mu.RUnlock()
	families, err := r.source.Gather()
	if base == nil {
		return families, err
	}
	out := families[:0]
	for _, f := range families {
		if f.Metric = subtractBase(base[f.GetName()], f.Metric); len(f.Metric) > 0 {
			out = append(out, f)
		}
	}
	return out, err
}

// subtractBase returns the series with the values that they have counted since base. It omits
// series that have counted nothing since.
func subtractBase(base map[string]*dto.Metric, series []*dto.Metric) []*dto.Metric {
	out := make([]*dto.Metric, 0, len(series))
	for _, metric := range series {
		before := base[labelKeyOf(metric)]
		// A series that counted less has been removed and created again.
		if len(metric.Label) == 0 || before == nil || newTestRegistry(metric) < newTestRegistry(before) {
			out = append(out, metric)
			continue
		}
		if newTestRegistry(metric) > newTestRegistry(before) {
			metric = copySeries(metric)
			subtractSeries(metric, before)
			out = append(out, metric)
		}
	}
	return out
}

// subtractSeries subtracts the values of an earlier state of the same series.
func subtractSeries(metric, before *dto.Metric) {
	if metric.Counter != nil {
		metric.Counter.Value = new(metric.Counter.GetValue() - before.Counter.GetValue())
		return
	}
	metric.Histogram.SampleCount = new(metric.Histogram.GetSampleCount() - before.Histogram.GetSampleCount())
	metric.Histogram.SampleSum = new(metric.Histogram.GetSampleSum() - before.Histogram.GetSampleSum())
	for i, b := range before.Histogram.Bucket { // buckets of one family have equal bounds
		metric.Histogram.Bucket[i].CumulativeCount = new(metric.Histogram.Bucket[i].GetCumulativeCount() - b.GetCumulativeCount())
	}
}
