package peers

import (
	"bufio"
	"net"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts requests proxied to peers. The metric has the same name as in Kubernetes.
type Metrics struct{ total *prometheus.CounterVec }

// NewMetrics registers the metrics.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	result := &Metrics{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "apiserver_rerouted_request_total", Help: "[ALPHA] Number of requests proxied to a peer, by response code.",
	}, []string{"code"})}
	registerer.MustRegister(result.total)
	return result
}

// countResponse counts a request by the status code of its response.
func (m *Metrics) countResponse(code int) { m.total.WithLabelValues(strconv.Itoa(code)).Inc() }

// codeRecorder records the status code of a response.
type codeRecorder struct {
	http.ResponseWriter
	code int
}

// WriteHeader implements http.ResponseWriter.
func (r *codeRecorder) WriteHeader(code int) {
	if r.code == 0 && (code >= http.StatusOK || code == http.StatusSwitchingProtocols) {
		r.code = code
	}
	r.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (r *codeRecorder) Write(b []byte) (int, error) {
	if r.code == 0 {
		r.code = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

// Hijack implements http.Hijacker. It records 101 unless a status code was recorded before, because
// the proxy hijacks a connection to upgrade it.
func (r *codeRecorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, response, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err == nil && r.code == 0 {
		r.code = http.StatusSwitchingProtocols
	}
	return conn, response, err
}

// Unwrap supports http.ResponseController.
func (r *codeRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
