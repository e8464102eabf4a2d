package queuemetrics_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/client-go/util/workqueue"

	"binnacle/libs/clusterinfo/queuemetrics"
)

// gather returns the only metric of each family.
func gather(t *testing.T, r *prometheus.Registry) map[string]*dto.Metric {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*dto.Metric{}
	for _, f := range families {
		if len(f.Metric) != 1 || f.Metric[0].GetLabel()[0].GetName() != "name" || f.Metric[0].GetLabel()[0].GetValue() != "q" {
			t.Errorf("%s: %v, want one with the label name=q", f.GetName(), f.Metric)
		}
		out[strings.TrimPrefix(f.GetName(), "workqueue_")] = f.Metric[0]
	}
	return out
}

func queue(p *queuemetrics.Provider) workqueue.TypedRateLimitingInterface[string] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "q", MetricsProvider: p})
}

// TestQueueMetrics checks the metrics of a work queue.
func TestQueueMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	provider := queuemetrics.New(registry)
	q := queue(provider)
	q.Add("a")
	q.Add("b")
	if m := gather(t, registry); m["depth"].GetGauge().GetValue() != 2 || m["adds_total"].GetCounter().GetValue() != 2 {
		t.Errorf("after two additions: got %v, want depth 2 and adds_total 2", m)
	}
	item, _ := q.Get()
	q.AddRateLimited("c")
	q.Done(item)
	m := gather(t, registry)
	for _, name := range []string{"queue_duration_seconds", "work_duration_seconds"} {
		if n := m[name].GetHistogram().GetSampleCount(); n != 1 {
			t.Errorf("%s: %d samples, want 1", name, n)
		}
	}
	if m["retries_total"].GetCounter().GetValue() != 1 {
		t.Errorf("after a retry: got retries_total %v, want 1", m["retries_total"])
	}
	for _, name := range []string{"unfinished_work_seconds", "longest_running_processor_seconds"} {
		if m[name] == nil {
			t.Errorf("missing metric %s, want m[name] set", name)
		}
	}
	q.ShutDown()

	again := queue(provider)
	defer again.ShutDown()
	if m := gather(t, registry); m["depth"].GetGauge().GetValue() != 0 {
		t.Errorf("new queue: got depth %v, want 0", m["depth"])
	}
}
