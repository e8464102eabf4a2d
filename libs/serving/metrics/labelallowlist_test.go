package metrics_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// withUser returns a series with the label user.
func withUser(user string, metric *dto.Metric) *dto.Metric {
	metric.Label = []*dto.LabelPair{{Name: new("user"), Value: new(user)}}
	return metric
}

// TestGatheredSeriesAreNotChanged checks that gathered series, which the registry may own, are not
// modified, and that series with values that are not allowed are added up for each type.
func TestGatheredSeriesAreNotChanged(t *testing.T) {
	for kind, test := range map[dto.MetricType]struct {
		series     func() *dto.Metric
		want       string // of two series
		unexpected string
	}{
		dto.MetricType_UNTYPED: {series: func() *dto.Metric { return &dto.Metric{Untyped: &dto.Untyped{Value: new(2.0)}} }, want: `x{user="unexpected"} 4`, unexpected: "2"},
		dto.MetricType_SUMMARY: {series: func() *dto.Metric {
			return &dto.Metric{Summary: &dto.Summary{SampleCount: new(uint64(3)), SampleSum: new(6.0)}}
		}, want: `x_sum{user="unexpected"} 12`, unexpected: "6"},
		dto.MetricType_HISTOGRAM: {series: func() *dto.Metric {
			return &dto.Metric{Histogram: &dto.Histogram{SampleCount: new(uint64(3)), SampleSum: new(6.0)}}
		}, want: `x_count{user="unexpected"} 6`, unexpected: "6"},
	} {
		series := []*dto.Metric{withUser("ann", test.series()), withUser("bob", test.series()), withUser("eve", test.series())}
		registry := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
			return []*dto.MetricFamily{{Name: new("x"), Help: new("x"), Type: kind.Enum(), Metric: append([]*dto.Metric(nil), series...)}}, nil
		})
		gatherer, err := parseLifecycle(t, "--allow-metric-labels=x,user=ann").Gatherer(registry, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			got := scrape(t, gatherer, slog.New(slog.DiscardHandler))
			for _, want := range []string{test.want, "cardinality_enforcement_unexpected_categorizations_total " + test.unexpected} {
				if !strings.Contains(got, want+"\n") {
					t.Errorf("%s: want %s in\n%s", kind, want, got)
				}
			}
		}
		for i, user := range []string{"ann", "bob", "eve"} {
			if got := series[i].Label[0].GetValue(); got != user {
				t.Errorf("%s: series of %s changed to %s, want %v", kind, user, got, user)
			}
		}
	}
}

// TestStabilityAndDeprecationAreParsed checks how stability and deprecation are parsed.
func TestStabilityAndDeprecationAreParsed(t *testing.T) {
	registry := prometheus.NewRegistry()
	for name, help := range map[string]string{
		"older_total": "[ALPHA] (Deprecated since 0.90.0) x", "newer_total": "[ALPHA] (Deprecated since 2.1.0) x",
		"open_total": "[odd", "closed_total": "odd] x",
	} {
		registry.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}))
	}
	got := exportedLines(t, parseLifecycle(t), registry)
	for line, want := range map[string]bool{
		"older_total 0":          false,
		"newer_total 0":          true,
		"open_total 0":           true,
		"closed_total 0":         true,
		"hidden_metrics_total 1": true,
		`registered_metrics_total{deprecated_version="2.1.0",stability_level="ALPHA"} 1`: true,
	} {
		if got[line] != want {
			t.Errorf("%s: exported = %t, want %v", line, got[line], want)
		}
	}
	for line := range got {
		if strings.Contains(line, `dd"`) {
			t.Errorf("got %s, want no invalid stability", line)
		}
	}
}

// TestManifestsThatCannotBeRead checks that only unreadable manifests are logged.
func TestManifestsThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"good": "asked_total,user: ann\n", "bad": "asked_total,user: [\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for file, logs := range map[string]bool{"good": false, "bad": true, "absent": true, "": false} {
		var args []string
		if file != "" {
			args = []string{"--allow-metric-labels-manifest=" + filepath.Join(dir, file)}
		}
		var logged bytes.Buffer
		if _, err := parseLifecycle(t, args...).Gatherer(newTestRegistry(),
			slog.New(slog.NewTextHandler(&logged, nil))); err != nil {
			t.Error(err)
		}
		if strings.Contains(logged.String(), "cannot be read") != logs {
			t.Errorf("manifest %q: got log %s, want an error logged: %v", file, logged.String(), logs)
		}
	}
}
