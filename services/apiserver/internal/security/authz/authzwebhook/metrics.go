package authzwebhook

import "github.com/prometheus/client_golang/prometheus"

// typeName is the value of the label type.
const typeName = "Webhook"

// Metrics holds the metrics of all webhooks of a server.
type Metrics struct {
	evaluations, failOpen, cacheRequests, behind *prometheus.CounterVec
	duration                                     *prometheus.HistogramVec
	conditionErrors, conditionExclusions         *prometheus.CounterVec
	conditionSeconds                             *prometheus.HistogramVec
}

// NewMetrics returns the metrics and registers them.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	metrics := &Metrics{
		evaluations: counter("apiserver_authorization_webhook_evaluations_total",
			"Round trips to authorization webhooks.", "name", "result"),
		failOpen: counter("apiserver_authorization_webhook_evaluations_fail_open_total",
			"Answers of no opinion because an authorization webhook timed out or failed.", "name", "result"),
		duration: histogram("apiserver_authorization_webhook_duration_seconds", "Latency of requests to authorization webhooks.",
			[]float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 5, 10, 15, 30}, "name", "result"),
		cacheRequests: counter("binnacle_authorization_cache_requests_total",
			"Questions by what the cache of decisions knew: hit, miss, or oversized.", "name", "result"),
		behind: counter("binnacle_authorization_webhook_behind_total",
			"Answers that were decided on an older policy than this server has seen.", "name"),
		conditionErrors: counter("apiserver_authorization_match_condition_evaluation_errors_total",
			"Match conditions that failed.", "type", "name"),
		conditionExclusions: counter("apiserver_authorization_match_condition_exclusions_total",
			"Requests that a match condition kept from a webhook.", "type", "name"),
		conditionSeconds: histogram("apiserver_authorization_match_condition_evaluation_seconds", "Time that match conditions took.",
			[]float64{0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25}, "type", "name"),
	}
	registerer.MustRegister(metrics.evaluations, metrics.failOpen, metrics.cacheRequests,
		metrics.behind, metrics.duration, metrics.conditionErrors, metrics.conditionExclusions, metrics.conditionSeconds)
	return metrics
}
