package externaljwt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Metrics counts calls of the signer, under the names of Kubernetes.
type Metrics struct {
	fetchTimestamp, dataTimestamp prometheus.Gauge
	fetches, signs                *prometheus.CounterVec
	durations                     *prometheus.HistogramVec
}

// NewMetrics returns the metrics and registers them.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	const prefix = "apiserver_externaljwt_"
	metrics := &Metrics{
		fetchTimestamp: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: prefix + "fetch_keys_success_timestamp",
			Help: "[ALPHA] Unix timestamp in seconds of the last fetch of the keys.",
		}),
		dataTimestamp: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: prefix + "fetch_keys_data_timestamp",
			Help: "[ALPHA] Unix timestamp in seconds of the data_timestamp of the last fetched keys.",
		}),
		fetches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "fetch_keys_request_total",
			Help: "[ALPHA] Number of fetches of the keys, by gRPC code.",
		}, []string{"code"}),
		signs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "sign_request_total",
			Help: "[ALPHA] Number of attempts to sign a token, by gRPC code.",
		}, []string{"code"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    prefix + "request_duration_seconds",
			Help:    "[ALPHA] Duration of calls of the external signer in seconds, by method and gRPC code.",
			Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"method", "code"}),
	}
	for _, c := range []prometheus.Collector{metrics.fetchTimestamp, metrics.dataTimestamp, metrics.fetches, metrics.signs, metrics.durations} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("metrics of the external token signer: %w", err)
		}
	}
	return metrics, nil
}

// recordFetch counts a fetch of the keys, and records the time of a successful one.
func (m *Metrics) recordFetch(err error) {
	m.fetches.WithLabelValues(codeOf(err)).Inc()
	if err == nil {
		m.fetchTimestamp.SetToCurrentTime()
	}
}

func (m *Metrics) recordDataTime(dataTime time.Time) {
	m.dataTimestamp.Set(float64(dataTime.UnixNano()) / float64(time.Second))
}

func (m *Metrics) recordSign(err error) { m.signs.WithLabelValues(codeOf(err)).Inc() }

// recordCall is a client interceptor that records the duration of a call.
func (m *Metrics) recordCall(
	ctx context.Context,
	method string,
	req, reply any,
	conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	start := time.Now()
	err := invoke(ctx, method, req, reply, conn, opts...)
	m.durations.WithLabelValues(method, codeOf(err)).Observe(time.Since(start).Seconds())
	return err
}

// codeOf returns the gRPC code of an error as a label.
func codeOf(err error) string {
	if err == nil {
		return codes.OK.String()
	}
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
		return s.GRPCStatus().Code().String()
	}
	return "unknown-non-grpc"
}
