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
	metrics := map[string]*dto.Metric{}
	for _, family := range families {
		if len(family.Metric) != 1 || family.Metric[0].GetLabel()[0].GetName() != "name" || family.Metric[0].GetLabel()[0].GetValue() != "q" {
			t.Errorf("%s: %v, want one with the label name=q", family.GetName(), family.Metric)
		}
		metrics[strings.TrimPrefix(family.GetName(), "workqueue_")] = family.Metric[0]
	}
	return metrics
}

func queue(p *queuemetrics.Provider) workqueue.TypedRateLimitingInterface[string] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "q", MetricsProvider: p})
}

// TestQueueMetricsFollowTheQueue checks the metrics of a work queue.
func TestQueueMetricsFollowTheQueue(t *testing.T) {
	registry := prometheus.NewRegistry()
	provider := queuemetrics.New(registry)
	workQueue := queue(provider)
	workQueue.Add("a")
	workQueue.Add("b")
	if metrics := gather(t, registry); metrics["depth"].GetGauge().GetValue() != 2 || metrics["adds_total"].GetCounter().GetValue() != 2 {
		t.Errorf("after two additions: got %v, want depth 2 and adds_total 2", metrics)
	}
	item, _ := workQueue.Get()
	workQueue.AddRateLimited("c")
	workQueue.Done(item)
	metrics := gather(t, registry)
	for _, name := range []string{"queue_duration_seconds", "work_duration_seconds"} {
		if n := metrics[name].GetHistogram().GetSampleCount(); n != 1 {
			t.Errorf("%s: %d samples, want 1", name, n)
		}
	}
	if metrics["retries_total"].GetCounter().GetValue() != 1 {
		t.Errorf("after a retry: got retries_total %v, want 1", metrics["retries_total"])
	}
	for _, name := range []string{"unfinished_work_seconds", "longest_running_processor_seconds"} {
		if metrics[name] == nil {
			t.Errorf("metric %s is missing", name)
		}
	}
	workQueue.ShutDown()

	newQueue := queue(provider)
	defer newQueue.ShutDown()
	if metrics := gather(t, registry); metrics["depth"].GetGauge().GetValue() != 0 {
		t.Errorf("new queue: got depth %v, want 0", metrics["depth"])
	}
}
