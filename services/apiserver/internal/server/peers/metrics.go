package peers

import (
	"bufio"
	"net"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts proxied requests, under the name of Kubernetes.
type Metrics struct{ total *prometheus.CounterVec }

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "apiserver_rerouted_request_total", Help: "[ALPHA] Number of requests proxied to a peer, by response code.",
	}, []string{"code"})}
	r.MustRegister(m.total)
	return m
}

// count counts a request by the status code of its response.
func (m *Metrics) count(code int) { m.total.WithLabelValues(strconv.Itoa(code)).Inc() }

// codeRecorder records the status code of a response.
type codeRecorder struct {
	http.ResponseWriter
	code int
}

// WriteHeader implements http.ResponseWriter.
func (t *codeRecorder) WriteHeader(code int) {
	if t.code == 0 && (code >= http.StatusOK || code == http.StatusSwitchingProtocols) {
		t.code = code
	}
	t.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (t *codeRecorder) Write(b []byte) (int, error) {
	if t.code == 0 {
		t.code = http.StatusOK
	}
	return t.ResponseWriter.Write(b)
}

// Hijack implements http.Hijacker. A hijacked connection is upgraded, or gets its response
// directly.
func (t *codeRecorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(t.ResponseWriter).Hijack()
	if err == nil && t.code == 0 {
		t.code = http.StatusSwitchingProtocols
	}
	return conn, rw, err
}

// Unwrap supports http.ResponseController.
func (t *codeRecorder) Unwrap() http.ResponseWriter { return t.ResponseWriter }
