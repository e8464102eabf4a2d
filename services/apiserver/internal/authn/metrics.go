package authn

import (
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/services/apiserver/internal/request"
)

// Measured counts what an authenticator says, under the names that Kubernetes
// has for it.
type Measured struct {
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

// NewMeasured registers the metrics of an authenticator.
func NewMeasured(next Authenticator, r prometheus.Registerer) *Measured {
	m := &Measured{next: next, attempts: map[string]prometheus.Counter{}, duration: map[string]prometheus.Observer{}}
	m.users = prometheus.NewCounterVec(prometheus.CounterOpts{
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
	r.MustRegister(m.users, attempts, duration)
	for _, result := range []string{resultSuccess, resultFailure, resultError} {
		m.attempts[result], m.duration[result] = attempts.WithLabelValues(result), duration.WithLabelValues(result)
	}
	return m
}

// Authenticate implements Authenticator.
func (m *Measured) Authenticate(r *http.Request) (*request.User, error) {
	start := time.Now()
	u, err := m.next.Authenticate(r)
	result := resultSuccess
	switch {
	case u != nil:
		m.users.WithLabelValues(kindOfName(u.Name)).Inc()
	case err != nil:
		result = resultError
	default:
		result = resultFailure
	}
	m.attempts[result].Inc()
	m.duration[result].Observe(time.Since(start).Seconds())
	return u, err
}

// kindOfName keeps the label's values few.
func kindOfName(name string) string {
	switch {
	case name == "admin", name == "client", name == "kube_proxy", name == "kubelet", name == "system:serviceaccount:kube-system:default":
		return name
	case strings.Contains(name, "@"):
		return "email_id"
	}
	return "other"
}
