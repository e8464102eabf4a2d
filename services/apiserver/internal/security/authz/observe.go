package authz

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/authorizer"
)

// Metrics counts decisions.
type Metrics struct {
	decisions, attempts *prometheus.CounterVec
	duration            *prometheus.HistogramVec
}

// NewMetrics returns the metrics and registers them.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	metrics := &Metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_authorization_decisions_total",
			Help: "[ALPHA] Number of final decisions of an authorizer, by authorizer and decision.",
		}, []string{"type", "name", "decision"}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "authorization_attempts_total",
			Help: "[ALPHA] Authorization attempts broken down by result. It can be either 'allowed', 'denied', 'no-opinion' or 'error'.",
		}, []string{"result"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "authorization_duration_seconds",
			Help:    "[ALPHA] Authorization duration in seconds broken out by result.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"result"}),
	}
	registerer.MustRegister(metrics.decisions, metrics.attempts, metrics.duration)
	return metrics
}

// Decisions returns an authorizer that counts the decisions of authz under a type and a name.
func (m *Metrics) Decisions(kind, name string, authz Authorizer) Authorizer {
	measured := countingAuthorizer{
		Authorizer: authz,
		allowed:    m.decisions.WithLabelValues(kind, name, "allowed"),
		denied:     m.decisions.WithLabelValues(kind, name, "denied"),
	}
	if r, ok := authz.(authorizer.RuleResolver); ok {
		return &countedResolver{measured, r}
	}
	return &measured
}

// countingAuthorizer is an authorizer whose decisions are counted.
type countingAuthorizer struct {
	Authorizer
	allowed, denied prometheus.Counter
}

// countedResolver is a countingAuthorizer that lists rules.
type countedResolver struct {
	countingAuthorizer
	authorizer.RuleResolver
}

// Authorize implements Authorizer.
func (c *countingAuthorizer) Authorize(ctx context.Context, attrs *Attributes) (Decision, string, error) {
	decision, reason, err := c.Authorizer.Authorize(ctx, attrs)
	switch decision {
	case Allow:
		c.allowed.Inc()
	case Deny:
		c.denied.Inc()
	}
	return decision, reason, err
}

// Requests returns an authorizer that counts and times the decisions of authz on requests to the
// server.
func (m *Metrics) Requests(authz Authorizer) Authorizer {
	measured := &requestAuthorizer{Authorizer: authz}
	for i, result := range resultLabels {
		measured.attempts[i] = m.attempts.WithLabelValues(result)
		measured.duration[i] = m.duration.WithLabelValues(result)
	}
	return measured
}

// resultLabels holds the label values by decision. Index 3 is for an error without a decision.
var resultLabels = [...]string{NoOpinion: "no-opinion", Allow: "allowed", Deny: "denied", 3: "error"}

// requestAuthorizer is an authorizer whose decisions on requests are counted and timed.
type requestAuthorizer struct {
	Authorizer
	attempts [len(resultLabels)]prometheus.Counter
	duration [len(resultLabels)]prometheus.Observer
}

// Authorize implements Authorizer.
func (r *requestAuthorizer) Authorize(ctx context.Context, attrs *Attributes) (Decision, string, error) {
	start := time.Now()
	decision, reason, err := r.Authorizer.Authorize(ctx, attrs)
	i := int(decision)
	if decision == NoOpinion && err != nil {
		i = len(resultLabels) - 1
	}
	r.attempts[i].Inc()
	r.duration[i].Observe(time.Since(start).Seconds())
	return decision, reason, err
}
