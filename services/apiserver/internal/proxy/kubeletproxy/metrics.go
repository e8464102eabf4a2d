package kubeletproxy

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilexec "k8s.io/client-go/util/exec"
)

// metrics counts streams of WebSocket clients by HTTP status, under the names of Kubernetes.
type metrics struct{ translated, tunnelled *prometheus.CounterVec }

// newMetrics registers the metrics.
func newMetrics(r prometheus.Registerer) metrics {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: "[ALPHA] " + help}, []string{"code"})
	}
	m := metrics{
		translated: counter("apiserver_stream_translator_requests_total",
			"Total number of requests that were handled by the StreamTranslatorProxy, which processes streaming RemoteCommand/V5"),
		tunnelled: counter("apiserver_stream_tunnel_requests_total",
			"Total number of requests that were handled by the StreamTunnelProxy, which processes streaming PortForward/V2"),
	}
	r.MustRegister(m.translated, m.tunnelled)
	return m
}

// countStream counts a stream. success is the status of a stream without an error. A command that
// ended with another exit code than 0 counts as a success.
func countStream(c *prometheus.CounterVec, err error, success int) {
	code := success
	var exit utilexec.CodeExitError
	var api apierrors.APIStatus
	switch {
	case err == nil, errors.As(err, &exit):
	case errors.As(err, &api):
		code = int(api.Status().Code)
	default:
		code = http.StatusInternalServerError
	}
	c.WithLabelValues(strconv.Itoa(code)).Inc()
}
