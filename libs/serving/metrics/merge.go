package metrics

import (
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// mergeDisallowed replaces label values that are not allowed by one value, and adds up series that
// become equal. It returns how much was counted under such values.
func mergeDisallowed(f *dto.MetricFamily, allowed map[string][]string) (unexpected float64) {
	merged := map[string]*dto.Metric{}
	out := make([]*dto.Metric, 0, len(f.Metric))
	for _, m := range f.Metric {
		changed := false
		for i, l := range m.Label {
			if values, ok := allowed[l.GetName()]; ok && !slices.Contains(values, l.GetValue()) {
				if !changed { // the registry may own the pairs
					m = &dto.Metric{
						Label:     slices.Clone(m.Label),
						Counter:   m.Counter,
						Gauge:     m.Gauge,
						Histogram: m.Histogram,
						Summary:   m.Summary,
						Untyped:   m.Untyped,
					}
					changed = true
				}
				m.Label[i] = &dto.LabelPair{Name: l.Name, Value: new(unexpectedValue)}
				unexpected += newTestRegistry(m)
			}
		}
		id := labelKeyOf(m)
		if sum := merged[id]; sum != nil {
			addSeries(sum, m)
			continue
		}
		m = copySeries(m)
		merged[id] = m
		out = append(out, m)
	}
	f.Metric = out
	return unexpected
}

// labelKeyOf returns a map key that is equal for series with equal labels.
func labelKeyOf(m *dto.Metric) string {
	var b strings.Builder
	for _, l := range m.Label {
		b.WriteString(l.GetValue())
		b.WriteByte(0xff) // occurs in no valid text
	}
	return b.String()
}

// newTestRegistry returns the number of samples of a series, or 1 for a gauge.
func newTestRegistry(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Histogram != nil:
		return float64(m.Histogram.GetSampleCount())
	case m.Summary != nil:
		return float64(m.Summary.GetSampleCount())
	}
	return 1
}

// copySeries returns a copy that addSeries may change.
func copySeries(m *dto.Metric) *dto.Metric {
	out := &dto.Metric{Label: m.Label, TimestampMs: m.TimestampMs}
	switch {
	case m.Counter != nil:
		out.Counter = &dto.Counter{Value: m.Counter.Value, CreatedTimestamp: m.Counter.CreatedTimestamp}
	case m.Gauge != nil:
		out.Gauge = &dto.Gauge{Value: m.Gauge.Value}
	case m.Untyped != nil:
		out.Untyped = &dto.Untyped{Value: m.Untyped.Value}
	case m.Summary != nil:
		out.Summary = &dto.Summary{
			SampleCount:      m.Summary.SampleCount,
			SampleSum:        m.Summary.SampleSum,
			Quantile:         m.Summary.Quantile,
			CreatedTimestamp: m.Summary.CreatedTimestamp,
		}
	case m.Histogram != nil:
		h := &dto.Histogram{
			SampleCount:      m.Histogram.SampleCount,
			SampleSum:        m.Histogram.SampleSum,
			CreatedTimestamp: m.Histogram.CreatedTimestamp,
		}
		for _, b := range m.Histogram.Bucket {
			h.Bucket = append(h.Bucket, &dto.Bucket{CumulativeCount: b.CumulativeCount, UpperBound: b.UpperBound})
		}
		out.Histogram = h
	}
	return out
}

// addSeries adds the values of m to those of sum, a series of the same family. It drops quantiles,
// which cannot be added.
func addSeries(sum, m *dto.Metric) {
	switch {
	case m.Counter != nil:
		sum.Counter.Value = new(sum.Counter.GetValue() + m.Counter.GetValue())
	case m.Gauge != nil:
		sum.Gauge.Value = new(sum.Gauge.GetValue() + m.Gauge.GetValue())
	case m.Untyped != nil:
		sum.Untyped.Value = new(sum.Untyped.GetValue() + m.Untyped.GetValue())
	case m.Summary != nil:
		sum.Summary.SampleCount = new(sum.Summary.GetSampleCount() + m.Summary.GetSampleCount())
		sum.Summary.SampleSum = new(sum.Summary.GetSampleSum() + m.Summary.GetSampleSum())
		sum.Summary.Quantile = nil
	case m.Histogram != nil:
		sum.Histogram.SampleCount = new(sum.Histogram.GetSampleCount() + m.Histogram.GetSampleCount())
		sum.Histogram.SampleSum = new(sum.Histogram.GetSampleSum() + m.Histogram.GetSampleSum())
		for i, b := range m.Histogram.Bucket { // buckets of one family have equal bounds
			sum.Histogram.Bucket[i].CumulativeCount = new(sum.Histogram.Bucket[i].GetCumulativeCount() + b.GetCumulativeCount())
		}
	}
}
