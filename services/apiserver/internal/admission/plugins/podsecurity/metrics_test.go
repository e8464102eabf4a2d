package podsecurity

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestCountersStartAtZero checks that series with known labels exist from the start, as in Kubernetes.
func TestCountersStartAtZero(t *testing.T) {
	r := prometheus.NewRegistry()
	NewMetrics(r)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, f := range families {
		got[f.GetName()] = len(f.GetMetric())
	}
	for name, want := range map[string]int{"pod_security_evaluations_total": 2, "pod_security_exemptions_total": 4} {
		if got[name] != want {
			t.Errorf("%s has %d series at the start, want %d", name, got[name], want)
		}
	}
}
