package metrics_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"binnacle/libs/serving/metrics"
)

func scrape(t *testing.T, gatherer prometheus.Gatherer, log *slog.Logger) string {
	t.Helper()
	responseRecorder := httptest.NewRecorder()
	metrics.Handler(gatherer, log).ServeHTTP(responseRecorder, httptest.NewRequest("GET", "/metrics", nil))
	if responseRecorder.Code != 200 {
		t.Fatalf("status %d, want 200", responseRecorder.Code)
	}
	return responseRecorder.Body.String()
}

// TestEveryProcessHasItsBasicMetrics checks that a new registry has the metrics of the Go runtime
// and the build.
func TestEveryProcessHasItsBasicMetrics(t *testing.T) {
	body := scrape(t, metrics.New(), slog.New(slog.DiscardHandler))
	for _, want := range []string{"go_goroutines ", "kubernetes_build_info{", `git_version="v1.33.`} {
		if !strings.Contains(body, want) {
			t.Errorf("got metrics without %q, want it", want)
		}
	}
}

type brokenCollector struct{ desc *prometheus.Desc }

func (b brokenCollector) Describe(ch chan<- *prometheus.Desc) { ch <- b.desc }
func (b brokenCollector) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.NewInvalidMetric(b.desc, errBroken{})
}

type errBroken struct{}

func (errBroken) Error() string { return "no such gauge" }

// TestFailedCollectorIsLoggedAndOmitted checks that a collector that fails does not affect other
// metrics.
func TestFailedCollectorIsLoggedAndOmitted(t *testing.T) {
	var logged strings.Builder
	r := metrics.New()
	r.MustRegister(brokenCollector{prometheus.NewDesc("broken", "x", nil, nil)})
	body := scrape(t, r, slog.New(slog.NewTextHandler(&logged, nil)))
	if !strings.Contains(body, "go_goroutines ") {
		t.Errorf("got %q, want the metrics of the other collectors, such as go_goroutines", body)
	}
	if !strings.Contains(logged.String(), "no such gauge") {
		t.Errorf("got log %s, want it to contain %q", logged.String(), "no such gauge")
	}
}

// disconnectedWriter is a client that has disconnected.
type disconnectedWriter struct{ http.ResponseWriter }

func (disconnectedWriter) Write([]byte) (int, error) { return 0, errors.New("client disconnected") }

// TestDisconnectedClientsAreNotLogged checks that a client that disconnects during a scrape causes
// no log message.
func TestDisconnectedClientsAreNotLogged(t *testing.T) {
	var logged bytes.Buffer
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector())
	h := metrics.Handler(r, slog.New(slog.NewTextHandler(&logged, nil)))
	h.ServeHTTP(disconnectedWriter{httptest.NewRecorder()}, httptest.NewRequest("GET", "/metrics", nil))
	if logged.Len() > 0 {
		t.Errorf("got log %.300s, want none", logged.String())
	}
}
