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

// Metrics of what services are asked, under the names that Kubernetes has for them. Nil
// ones measure nothing. Objects of the API name hosts, so the series of a host are there
// while a client for it is, and bounded in number.
type Metrics struct {
	hosts *metrics.Series[string, string] // the label host of a host
	mu    sync.Mutex                      // a leaf
	held  map[string]int                  // clients by their hosts

	requests         *prometheus.CounterVec
	took             *prometheus.HistogramVec
	sent, received   *prometheus.HistogramVec
	missingSAN, sha1 prometheus.Counter
	traces           *tracing.Provider
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	histogram := func(name, help string, buckets ...float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "rest_client_" + name, Help: "[ALPHA] " + help, Buckets: buckets}, []string{"verb", "host"})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "apiserver_webhooks_x509_" + name, Help: "[ALPHA] " + help})
	}
	sizes := []float64{64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216}
	m := &Metrics{
		held: map[string]int{},
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rest_client_requests_total", Help: "[ALPHA] Requests to webhooks and other services, by HTTP status or <error>, method and host.",
		}, []string{"code", "method", "host"}),
		took: histogram("request_duration_seconds", "How long webhooks and other services took to answer, in seconds, by method and host.",
			0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0),
		sent:       histogram("request_size_bytes", "Sizes of requests to webhooks and other services in bytes, by method and host.", sizes...),
		received:   histogram("response_size_bytes", "Sizes of the answers of webhooks and other services in bytes, by method and host.", sizes...),
		missingSAN: counter("missing_san_total", "Connections to webhooks and other services that failed because the certificate has no alternative names."),
		sha1:       counter("insecure_sha1_total", "Connections to webhooks and other services that failed because the certificate is signed with SHA-1."),
	}
	vectors := []vector{m.requests, m.took, m.sent, m.received}
	m.hosts = metrics.NewSeries(metrics.SeriesConfig[string, string]{
		Limit: maxHosts, Overflow: func(string) string { return otherHosts },
		Add: func(host string) string { return host },
		Remove: func(host string) {
			for _, v := range vectors {
				v.DeletePartialMatch(prometheus.Labels{"host": host})
			}
		},
	})
	for _, v := range vectors {
		m.hosts.MustRegister(r, v)
	}
	m.hosts.KeepWhile(m.heldHosts)
	r.MustRegister(m.missingSAN, m.sha1)
	return m
}

type vector interface {
	prometheus.Collector
	DeletePartialMatch(prometheus.Labels) int
}

const (
	// maxHosts bounds the hosts that have series; otherHosts stands for all others.
	maxHosts   = 1000
	otherHosts = "other"
)

// hold keeps the series of a host until release is called once for each hold.
func (m *Metrics) hold(host string) (release func()) {
	if m == nil {
		return func() {}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held[host]++
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.held[host]--; m.held[host] == 0 {
			delete(m.held, host)
		}
	})
}

func (m *Metrics) heldHosts() func(host string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	held := maps.Clone(m.held)
	return func(host string) bool { return host == otherHosts || held[host] > 0 }
}

// Traced has requests traced too, for those who are.
func (m *Metrics) Traced(p *tracing.Provider) *Metrics {
	m.traces = p
	return m
}

// failed is the code of requests without an answer.
const failed = "<error>"

// around measures, and traces, what goes through a transport to a host. Where a redirect leads
// counts for that host, too.
func (m *Metrics) around(next http.RoundTripper, host string) http.RoundTripper {
	if m == nil {
		return next
	}
	return &measured{m.traces.Transport(next), m, host}
}

type measured struct {
	http.RoundTripper
	metrics *Metrics
	host    string
}

// RoundTrip implements http.RoundTripper.
func (t *measured) RoundTrip(r *http.Request) (*http.Response, error) {
	m, begin := t.metrics, time.Now()
	answer, err := t.RoundTripper.RoundTrip(r)
	host := m.hosts.Of(t.host)
	m.took.WithLabelValues(r.Method, host).Observe(time.Since(begin).Seconds())
	if r.ContentLength >= 0 {
		m.sent.WithLabelValues(r.Method, host).Observe(float64(r.ContentLength))
	}
	if err != nil {
		m.requests.WithLabelValues(failed, r.Method, host).Inc()
		CountFlaws(err, m.missingSAN, m.sha1)
	} else {
		m.requests.WithLabelValues(strconv.Itoa(answer.StatusCode), r.Method, host).Inc()
		if answer.ContentLength >= 0 { // else it is not known before it has come
			m.received.WithLabelValues(r.Method, host).Observe(float64(answer.ContentLength))
		}
	}
	m.hosts.Of(t.host) // so that series are removed that came after the client was released
	return answer, err
}

// CountFlaws counts what was wrong with the certificate of a server, of what was taken once.
func CountFlaws(err error, missingSAN, sha1 prometheus.Counter) {
	var unnamed x509.HostnameError
	var unknown x509.UnknownAuthorityError // whose text alone says why no authority fits
	switch {
	case errors.As(err, &unnamed):
		if len(unnamed.Certificate.DNSNames)+len(unnamed.Certificate.IPAddresses) == 0 {
			missingSAN.Inc()
		}
	case errors.As(err, &unknown):
		if text := unknown.Error(); strings.Contains(text, x509.InsecureAlgorithmError(x509.SHA1WithRSA).Error()) ||
			strings.Contains(text, x509.InsecureAlgorithmError(x509.ECDSAWithSHA1).Error()) {
			sha1.Inc()
		}
	}
}
