package webhookclient

import (
	"crypto/x509"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/serving/metrics"
	"binnacle/libs/tracing"
)

// Metrics measures requests to services, under the names of Kubernetes. A nil *Metrics measures
// nothing. API objects name hosts, so the series of a host exist only while a client for it exists,
// and their number is bounded.
type Metrics struct {
	hosts   *metrics.Series[string, string] // label values by host
	mu      sync.Mutex                      // leaf lock
	clients map[string]int                  // number of clients by host

	requests         *prometheus.CounterVec
	duration         *prometheus.HistogramVec
	sent, received   *prometheus.HistogramVec
	missingSAN, sha1 prometheus.Counter
	traces           *tracing.Provider
}

// NewMetrics registers the metrics.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	histogram := func(name, help string, buckets ...float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "rest_client_" + name,
			Help:    "[ALPHA] " + help,
			Buckets: buckets,
		}, []string{"verb", "host"})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "apiserver_webhooks_x509_" + name, Help: "[ALPHA] " + help})
	}
	sizes := []float64{64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216}
	created := &Metrics{
		clients: map[string]int{},
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rest_client_requests_total",
			Help: "[ALPHA] Requests to webhooks and other services, by HTTP status or <error>, method and host.",
		}, []string{"code", "method", "host"}),
		duration: histogram("request_duration_seconds",
			"Latency of requests to webhooks and other services in seconds, by method and host.",
			0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0),
		sent: histogram("request_size_bytes",
			"Sizes of requests to webhooks and other services in bytes, by method and host.", sizes...),
		received: histogram("response_size_bytes",
			"Sizes of responses of webhooks and other services in bytes, by method and host.", sizes...),
		missingSAN: counter("missing_san_total",
			"Connections to webhooks and other services that failed because the certificate has no alternative names."),
		sha1: counter("insecure_sha1_total",
			"Connections to webhooks and other services that failed because the certificate is signed with SHA-1."),
	}
	vectors := []vector{created.requests, created.duration, created.sent, created.received}
	created.hosts = metrics.NewSeries(metrics.SeriesConfig[string, string]{
		Limit:    maxHosts,
		Overflow: func(string) string { return otherHosts },
		Add:      func(host string) string { return host },
		Remove: func(host string) {
			for _, v := range vectors {
				v.DeletePartialMatch(prometheus.Labels{"host": host})
			}
		},
	})
	for _, v := range vectors {
		created.hosts.MustRegister(registerer, v)
	}
	created.hosts.KeepWhile(created.hostInUse)
	registerer.MustRegister(created.missingSAN, created.sha1)
	return created
}

// vector is a metric with labels.
type vector interface {
	prometheus.Collector
	DeletePartialMatch(prometheus.Labels) int
}

const (
	// maxHosts bounds the hosts that have their own series. All others share the series of
	// otherHosts.
	maxHosts   = 1000
	otherHosts = "other"
)

// retain keeps the series of a host until the returned function is called.
func (m *Metrics) retain(host string) (release func()) {
	if m == nil {
		return func() {}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clients[host]++
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.clients[host]--
		if m.clients[host] == 0 {
			delete(m.clients, host)
		}
	})
}

// hostInUse returns a function that reports whether the series of a host must be kept.
func (m *Metrics) hostInUse() func(host string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	clients := maps.Clone(m.clients)
	return func(host string) bool { return host == otherHosts || clients[host] > 0 }
}

// Traced enables spans of requests whose context has a trace.
func (m *Metrics) Traced(p *tracing.Provider) *Metrics {
	m.traces = p
	return m
}

// noResponse is the value of the label code for requests without a response.
const noResponse = "<error>"

// instrument wraps a transport with metrics and spans. Redirected requests count for the original
// host.
func (m *Metrics) instrument(next http.RoundTripper, host string) http.RoundTripper {
	if m == nil {
		return next
	}
	return &measuredTransport{m.traces.Transport(next), m, host}
}

// measuredTransport measures the requests to a host.
type measuredTransport struct {
	http.RoundTripper
	metrics *Metrics
	host    string
}

// RoundTrip implements http.RoundTripper.
func (t *measuredTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	counters, start := t.metrics, time.Now()
	resp, err := t.RoundTripper.RoundTrip(r)
	host := counters.hosts.WithLabels(t.host)
	counters.duration.WithLabelValues(r.Method, host).Observe(time.Since(start).Seconds())
	if r.ContentLength >= 0 {
		counters.sent.WithLabelValues(r.Method, host).Observe(float64(r.ContentLength))
	}
	if err != nil {
		counters.requests.WithLabelValues(noResponse, r.Method, host).Inc()
		CountCertificateErrors(err, counters.missingSAN, counters.sha1)
	} else {
		counters.requests.WithLabelValues(strconv.Itoa(resp.StatusCode), r.Method, host).Inc()
		if resp.ContentLength >= 0 { // otherwise the size is unknown
			counters.received.WithLabelValues(r.Method, host).Observe(float64(resp.ContentLength))
		}
	}
	counters.hosts.WithLabels(t.host) // removes series that were created after the client was released
	return resp, err
}

// CountCertificateErrors counts a failed TLS handshake whose cause is a server certificate without
// a subject alternative name or with a SHA-1 signature.
func CountCertificateErrors(err error, missingSAN, sha1 prometheus.Counter) {
	var hostname x509.HostnameError
	var unknown x509.UnknownAuthorityError // only its text contains the cause
	switch {
	case errors.As(err, &hostname):
		if len(hostname.Certificate.DNSNames)+len(hostname.Certificate.IPAddresses) == 0 {
			missingSAN.Inc()
		}
	case errors.As(err, &unknown):
		if text := unknown.Error(); strings.Contains(text, x509.InsecureAlgorithmError(x509.SHA1WithRSA).Error()) ||
			strings.Contains(text, x509.InsecureAlgorithmError(x509.ECDSAWithSHA1).Error()) {
			sha1.Inc()
		}
	}
}
