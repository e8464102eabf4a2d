package kmstest

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Samples returns the counters and gauges with a name, and the counts of histograms. The map keys
// are the label values in the order of the label names, separated by spaces.
func Samples(t testing.TB, reg *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			out[strings.Join(labels, " ")] = m.GetCounter().GetValue() +
				m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}
