package telemetry

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// TestActiveClientsAreCounted checks that the metric is bounded and has the most
// active clients, also if many others come and go.
func TestActiveClientsAreCounted(t *testing.T) {
	clientCounts := newClientCounts()
	for i := range 10_000 {
		clientCounts.add(fmt.Sprintf("network 10.0.%d.%d/32", i/250, i%250))
		if i%4 == 0 {
			clientCounts.add("user ada\xff")
		}
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(clientCounts)
	families, err := r.Gather()
	if err != nil || len(families) != 1 || len(families[0].Metric) != shownClients {
		t.Fatalf("got metrics %v, error %v, want one family of %d clients", families, err, shownClients)
	}
	if first := families[0].Metric; !containsClient(first, "user ada?", 2500) {
		t.Errorf("got %v, want user ada? with at least 2500 requests", first)
	}
	if len(clientCounts.counts) > countedClients {
		t.Errorf("got %d counters, want at most %d", len(clientCounts.counts), countedClients)
	}
}

// containsClient reports whether a client has at least a number of requests.
func containsClient(metrics []*dto.Metric, name string, minimum float64) bool {
	for _, metric := range metrics {
		if metric.Label[0].GetValue() == name && metric.Counter.GetValue() >= minimum {
			return true
		}
	}
	return false
}
