package metrics

import (
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// mergeDisallowed replaces label values that are not allowed by one value, and adds up series that
// become equal. It returns how much was counted under such values.
func mergeDisallowed(metricFamily *dto.MetricFamily, allowed map[string][]string) (unexpected float64) {
	merged := map[string]*dto.Metric{}
	out := make([]*dto.Metric, 0, len(metricFamily.Metric))
	for _, metric := range metricFamily.Metric {
		changed := false
		for i, labelPair := range metric.Label {
			if values, ok := allowed[labelPair.GetName()]; ok && !slices.Contains(values, labelPair.GetValue()) {
				if !changed { // the registry may own the pairs
					metric = &dto.Metric{
						Label:     slices.Clone(metric.Label),
						Counter:   metric.Counter,
						Gauge:     metric.Gauge,
						Histogram: metric.Histogram,
						Summary:   metric.Summary,
						Untyped:   metric.Untyped,
					}
					changed = true
				}
				metric.Label[i] = &dto.LabelPair{Name: labelPair.Name, Value: new(unexpectedValue)}
				unexpected += newTestRegistry(metric)
			}
		}
		id := labelKeyOf(metric)
		if sum := merged[id]; sum != nil {
			addSeries(sum, metric)
			continue
		}
		metric = copySeries(metric)
		merged[id] = metric
		out = append(out, metric)
	}
	metricFamily.Metric = out
	return unexpected
}

// labelKeyOf returns a map key that is equal for series with equal labels.
func labelKeyOf(metric *dto.Metric) string {
	var b strings.Builder
	for _, l := range metric.Label {
		b.WriteString(l.GetValue())
		b.WriteByte(0xff) // occurs in no valid text
	}
	return b.String()
}

// newTestRegistry returns the number of samples of a series, or 1 for a gauge.
func newTestRegistry(metric *dto.Metric) float64 {
	switch {
	case metric.Counter != nil:
		return metric.Counter.GetValue()
	case metric.Histogram != nil:
		return float64(metric.Histogram.GetSampleCount())
	case metric.Summary != nil:
		return float64(metric.Summary.GetSampleCount())
	}
	return 1
}

// copySeries returns a copy that addSeries may change.
func copySeries(metric *dto.Metric) *dto.Metric {
	out := &dto.Metric{Label: metric.Label, TimestampMs: metric.TimestampMs}
	switch {
	case metric.Counter != nil:
		out.Counter = &dto.Counter{Value: metric.Counter.Value, CreatedTimestamp: metric.Counter.CreatedTimestamp}
	case metric.Gauge != nil:
		out.Gauge = &dto.Gauge{Value: metric.Gauge.Value}
	case metric.Untyped != nil:
		out.Untyped = &dto.Untyped{Value: metric.Untyped.Value}
	case metric.Summary != nil:
		out.Summary = &dto.Summary{
			SampleCount:      metric.Summary.SampleCount,
			SampleSum:        metric.Summary.SampleSum,
			Quantile:         metric.Summary.Quantile,
			CreatedTimestamp: metric.Summary.CreatedTimestamp,
		}
	case metric.Histogram != nil:
		histogram := &dto.Histogram{
			SampleCount:      metric.Histogram.SampleCount,
			SampleSum:        metric.Histogram.SampleSum,
			CreatedTimestamp: metric.Histogram.CreatedTimestamp,
		}
		for _, b := range metric.Histogram.Bucket {
			histogram.Bucket = append(histogram.Bucket, &dto.Bucket{CumulativeCount: b.CumulativeCount, UpperBound: b.UpperBound})
		}
		out.Histogram = histogram
	}
	return out
}

// addSeries adds the values of metric to those of sum, a series of the same family. It drops
// quantiles, which cannot be added.
func addSeries(sum, metric *dto.Metric) {
	switch {
	case metric.Counter != nil:
		sum.Counter.Value = new(sum.Counter.GetValue() + metric.Counter.GetValue())
	case metric.Gauge != nil:
		sum.Gauge.Value = new(sum.Gauge.GetValue() + metric.Gauge.GetValue())
	case metric.Untyped != nil:
		sum.Untyped.Value = new(sum.Untyped.GetValue() + metric.Untyped.GetValue())
	case metric.Summary != nil:
		sum.Summary.SampleCount = new(sum.Summary.GetSampleCount() + metric.Summary.GetSampleCount())
		sum.Summary.SampleSum = new(sum.Summary.GetSampleSum() + metric.Summary.GetSampleSum())
		sum.Summary.Quantile = nil
	case metric.Histogram != nil:
		sum.Histogram.SampleCount = new(sum.Histogram.GetSampleCount() + metric.Histogram.GetSampleCount())
		sum.Histogram.SampleSum = new(sum.Histogram.GetSampleSum() + metric.Histogram.GetSampleSum())
		for i, b := range metric.Histogram.Bucket { // buckets of one family have equal bounds
			sum.Histogram.Bucket[i].CumulativeCount = new(sum.Histogram.Bucket[i].GetCumulativeCount() + b.GetCumulativeCount())
		}
	}
}
