package authn

import (
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/services/apiserver/internal/request"
)

// WithMetrics counts the results of an authenticator, under the names of Kubernetes.
type WithMetrics struct {
	next     Authenticator
	users    *prometheus.CounterVec
	attempts map[string]prometheus.Counter
	duration map[string]prometheus.Observer
}

// Results of an attempt.
const (
	resultSuccess = "success"
	resultFailure = "failure"
	resultError   = "error"
)

// NewMeasured wraps an authenticator and registers its metrics.
func NewMeasured(next Authenticator, registerer prometheus.Registerer) *WithMetrics {
	withMetrics := &WithMetrics{next: next, attempts: map[string]prometheus.Counter{}, duration: map[string]prometheus.Observer{}}
	withMetrics.users = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "authenticated_user_requests",
		Help: "[ALPHA] Authenticated requests by kind of user name.",
	}, []string{"username"})
	attempts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "authentication_attempts",
		Help: "[ALPHA] Attempts to authenticate a request by result: success, failure, error.",
	}, []string{"result"})
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "authentication_duration_seconds",
		Help:    "[ALPHA] Duration of authentication in seconds by result.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
	}, []string{"result"})
	registerer.MustRegister(withMetrics.users, attempts, duration)
	for _, result := range []string{resultSuccess, resultFailure, resultError} {
		withMetrics.attempts[result], withMetrics.duration[result] = attempts.WithLabelValues(result), duration.WithLabelValues(result)
	}
	return withMetrics
}

// Authenticate implements Authenticator.
func (m *WithMetrics) Authenticate(r *http.Request) (*request.User, error) {
	start := time.Now()
	user, err := m.next.Authenticate(r)
	result := resultSuccess
	switch {
	case user != nil:
		m.users.WithLabelValues(kindOfName(user.Name)).Inc()
	case err != nil:
		result = resultError
	default:
		result = resultFailure
	}
	m.attempts[result].Inc()
	m.duration[result].Observe(time.Since(start).Seconds())
	return user, err
}

// kindOfName returns the kind of a user name. It bounds the number of values of the label.
func kindOfName(name string) string {
	switch {
	case name == "admin", name == "client", name == "kube_proxy", name == "kubelet", name == "system:serviceaccount:kube-system:default":
		return name
	case strings.Contains(name, "@"):
		return "email_id"
	}
	return "other"
}

// Measure registers a histogram of the remaining lifetime of client certificates. It is called
// before the first request.
func (c *Certificates) Measure(r prometheus.Registerer) {
	const hour, day = 3600, 24 * 3600
	h := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "apiserver_client_certificate_expiration_seconds",
		Help: "[ALPHA] Distribution of the remaining lifetime of the client certificate used to authenticate a request, in seconds.",
		Buckets: []float64{
			0, hour / 2, hour, 2 * hour, 6 * hour, 12 * hour, day, 2 * day, 4 * day, 7 * day, 30 * day, 90 * day, 180 * day, 360 * day,
		},
	})
	r.MustRegister(h)
	c.remainingLifetime = h
}
