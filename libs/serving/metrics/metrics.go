// Package metrics creates and serves the Prometheus registry of a process. Registries are passed as
// arguments; the global one is not used.
package metrics

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"binnacle/libs/version"
)

// maxConcurrentScrapes limits the memory that scrapes use.
const maxConcurrentScrapes = 4

// started is the time from which the counters of the process count.
var started = time.Now()

// New returns a registry with the metrics of every process: Go runtime, process, and
// kubernetes_build_info.
func New() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsAll)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildInfo(),
	)
	return registry
}

// buildInfo returns the metric with the build information.
func buildInfo() prometheus.Collector {
	info := version.Get()
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kubernetes_build_info",
		Help: "[ALPHA] Build information of the process as labels; the value is always 1.",
		ConstLabels: prometheus.Labels{
			"major":          info.Major,
			"minor":          info.Minor,
			"git_version":    info.GitVersion,
			"git_commit":     info.GitCommit,
			"git_tree_state": info.GitTreeState,
			"build_date":     info.BuildDate,
			"go_version":     info.GoVersion,
			"compiler":       info.Compiler,
			"platform":       info.Platform,
		},
	})
	gauge.Set(1)
	return gauge
}

// Handler serves the gathered metrics. A collector that fails is logged and omitted.
func Handler(gatherer prometheus.Gatherer, log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{
		ErrorLog:            errorLog{log},
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: maxConcurrentScrapes,
		ProcessStartTime:    started,
	})
}

// errorLog logs the errors of a scrape.
type errorLog struct{ log *slog.Logger }

// disconnectPrefix is the prefix of errors for a client that disconnected during a scrape, which is
// not an error of the process.
const disconnectPrefix = "error encoding and sending metric family:"

func (l errorLog) Println(v ...any) {
	text, level := fmt.Sprint(v...), slog.LevelError
	if strings.HasPrefix(text, disconnectPrefix) {
		level = slog.LevelDebug
	}
	l.log.Log(context.Background(), level, "gathering metrics", "error", text)
}
