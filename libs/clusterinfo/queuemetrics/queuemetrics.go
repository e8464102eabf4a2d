// Package queuemetrics registers the metrics of client-go's work queues, under the names of
// Kubernetes' controllers, with the queue's name as the label "name".
//
// Each queue gets a Provider; nothing is global. A queue that is created again under the same name
// continues the same series, with its gauges at zero.
package queuemetrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
)

const nameLabel = "name"

// Provider implements workqueue.MetricsProvider.
type Provider struct {
	depth, unfinished, longest *prometheus.GaugeVec
	adds, retries              *prometheus.CounterVec
	latency, work              *prometheus.HistogramVec
}

var _ workqueue.MetricsProvider = (*Provider)(nil)

// New returns a Provider and registers its metrics. Call it once per registry.
func New(registerer prometheus.Registerer) *Provider {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "workqueue_" + name, Help: "[ALPHA] " + help},
			[]string{nameLabel})
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "workqueue_" + name, Help: "[ALPHA] " + help},
			[]string{nameLabel})
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "workqueue_" + name, Help: "[ALPHA] " + help,
			// From ten nanoseconds to ten seconds, as in Kubernetes.
			Buckets: prometheus.ExponentialBuckets(10e-9, 10, 10),
		}, []string{nameLabel})
	}
	provider := &Provider{
		depth: gauge("depth", "Number of items in the queue."),
		unfinished: gauge("unfinished_work_seconds",
			"Sum of the seconds that items have been worked on and are not done; it grows when a worker is stuck."),
		longest: gauge("longest_running_processor_seconds",
			"Seconds that the longest running worker has been busy with its item."),
		adds:    counter("adds_total", "Items added to the queue."),
		retries: counter("retries_total", "Items added for later: again after a failure, or as something is due then."),
		latency: histogram("queue_duration_seconds", "Seconds that an item waits in the queue before work on it starts."),
		work:    histogram("work_duration_seconds", "Seconds that work on an item takes."),
	}
	registerer.MustRegister(provider.depth, provider.unfinished, provider.longest, provider.adds, provider.retries, provider.latency, provider.work)
	return provider
}

func newGauge(v *prometheus.GaugeVec, name string) prometheus.Gauge {
	g := v.WithLabelValues(name)
	g.Set(0) // value of an earlier queue with that name
	return g
}

// NewDepthMetric implements workqueue.MetricsProvider.
func (p *Provider) NewDepthMetric(name string) workqueue.GaugeMetric { return newGauge(p.depth, name) }

// NewAddsMetric implements workqueue.MetricsProvider.
func (p *Provider) NewAddsMetric(name string) workqueue.CounterMetric {
	return p.adds.WithLabelValues(name)
}

// NewLatencyMetric implements workqueue.MetricsProvider.
func (p *Provider) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return p.latency.WithLabelValues(name)
}

// NewWorkDurationMetric implements workqueue.MetricsProvider.
func (p *Provider) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return p.work.WithLabelValues(name)
}

// NewUnfinishedWorkSecondsMetric implements workqueue.MetricsProvider.
func (p *Provider) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return newGauge(p.unfinished, name)
}

// NewLongestRunningProcessorSecondsMetric implements workqueue.MetricsProvider.
func (p *Provider) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return newGauge(p.longest, name)
}

// NewRetriesMetric implements workqueue.MetricsProvider.
func (p *Provider) NewRetriesMetric(name string) workqueue.CounterMetric {
	return p.retries.WithLabelValues(name)
}
