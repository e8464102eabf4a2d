package metrics_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"binnacle/libs/serving/metrics"
)

// parseLifecycle returns the Lifecycle for command-line arguments.
func parseLifecycle(t *testing.T, args ...string) *metrics.Lifecycle {
	t.Helper()
	lifecycle := &metrics.Lifecycle{}
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	lifecycle.AddFlags(f)
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	return lifecycle
}

// newTestRegistry returns a registry with one metric of each type and a label for the user.
func newTestRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	labels := []string{"user", "verb"}
	counterVec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "asked_total", Help: "[STABLE] x"}, labels)
	gaugeVec := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "open", Help: "[BETA] x"}, labels)
	histogramVec := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "took_seconds",
		Help:    "[ALPHA] x",
		Buckets: []float64{1, 2},
	}, labels)
	summaryVec := prometheus.NewSummaryVec(prometheus.SummaryOpts{
		Name:       "size_bytes",
		Help:       "[ALPHA] x",
		Objectives: map[float64]float64{0.5: 0.1},
	}, labels)
	old := prometheus.NewCounter(prometheus.CounterOpts{Name: "old_total", Help: "[ALPHA] (Deprecated since 1.32.0) x"})
	going := prometheus.NewCounter(prometheus.CounterOpts{Name: "going_total", Help: "[ALPHA] (Deprecated since 1.33.0) x"})
	registry.MustRegister(counterVec, gaugeVec, histogramVec, summaryVec, old, going)
	for i, user := range []string{"ann", "bob", "eve"} {
		n := float64(i + 1)
		counterVec.WithLabelValues(user, "get").Add(n)
		gaugeVec.WithLabelValues(user, "get").Set(n)
		histogramVec.WithLabelValues(user, "get").Observe(n)
		summaryVec.WithLabelValues(user, "get").Observe(n)
	}
	return registry
}

// exportedLines returns the exported lines without help.
func exportedLines(t *testing.T, lifecycle *metrics.Lifecycle, registry *prometheus.Registry) map[string]bool {
	t.Helper()
	gatherer, err := lifecycle.Gatherer(registry, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for line := range strings.Lines(scrape(t, gatherer, slog.New(slog.DiscardHandler))) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "#") {
			out[line] = true
		}
	}
	return out
}

// TestLifecycleFlagsSelectMetrics checks which metrics and label values are exported with which
// flags.
func TestLifecycleFlagsSelectMetrics(t *testing.T) {
	manifest := filepath.Join(t.TempDir(), "labels.yaml")
	if err := os.WriteFile(manifest, []byte("asked_total,user: ann,eve\nopen,user: bob\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args        []string
		want, never []string
	}{
		"everything": {args: nil,
			want: []string{
				`asked_total{user="bob",verb="get"} 2`, "going_total 0", "disabled_metrics_total 0", "hidden_metrics_total 1",
				"cardinality_enforcement_unexpected_categorizations_total 0",
				`registered_metrics_total{deprecated_version="",stability_level="ALPHA"} 2`,
				`registered_metrics_total{deprecated_version="",stability_level="BETA"} 1`,
				`registered_metrics_total{deprecated_version="",stability_level="STABLE"} 1`,
				`registered_metrics_total{deprecated_version="1.33.0",stability_level="ALPHA"} 1`,
			}, never: []string{"old_total 0"}},
		"hidden ones": {
			args:  []string{"--show-hidden-metrics-for-version=1.32"},
			want:  []string{"old_total 0", "hidden_metrics_total 0"},
			never: nil,
		},
		"without some": {
			args: []string{"--disabled-metrics=old_total,open", "--disabled-metrics=absent",
				"--show-hidden-metrics-for-version=1.32"},
			want:  []string{"disabled_metrics_total 3", "going_total 0"},
			never: []string{"old_total 0", `open{user="ann",verb="get"} 1`},
		},
		"counters": {args: []string{"--allow-metric-labels=asked_total,user=ann"},
			want: []string{`asked_total{user="ann",verb="get"} 1`, `asked_total{user="unexpected",verb="get"} 5`,
				"cardinality_enforcement_unexpected_categorizations_total 5"},
			never: []string{`asked_total{user="eve",verb="get"} 3`}},
		"two values": {args: []string{"--allow-metric-labels=asked_total,user=ann,eve"},
			want: []string{`asked_total{user="eve",verb="get"} 3`, `asked_total{user="unexpected",verb="get"} 2`}, never: nil},
		"gauges": {
			args:  []string{"--allow-metric-labels=open,user=ann"},
			want:  []string{`open{user="unexpected",verb="get"} 5`},
			never: nil,
		},
		"histograms": {args: []string{"--allow-metric-labels=took_seconds,user=x"},
			want: []string{
				`took_seconds_bucket{user="unexpected",verb="get",le="1"} 1`,
				`took_seconds_bucket{user="unexpected",verb="get",le="2"} 2`,
				`took_seconds_bucket{user="unexpected",verb="get",le="+Inf"} 3`,
				`took_seconds_sum{user="unexpected",verb="get"} 6`, `took_seconds_count{user="unexpected",verb="get"} 3`,
				"cardinality_enforcement_unexpected_categorizations_total 3",
			}, never: nil},
		"summaries": {args: []string{"--allow-metric-labels=size_bytes,user=ann"},
			want: []string{`size_bytes{user="ann",verb="get",quantile="0.5"} 1`,
				`size_bytes_sum{user="unexpected",verb="get"} 5`, `size_bytes_count{user="unexpected",verb="get"} 2`},
			never: []string{`size_bytes{user="unexpected",verb="get",quantile="0.5"} 2`}},
		"two labels": {args: []string{`--allow-metric-labels="asked_total,user=ann,eve","asked_total,verb=list"`},
			want:  []string{`asked_total{user="ann",verb="unexpected"} 1`, `asked_total{user="unexpected",verb="unexpected"} 2`},
			never: nil,
		},
		"given twice": {args: []string{"--allow-metric-labels=asked_total,user=ann", "--allow-metric-labels=open,user=ann"},
			want: []string{`asked_total{user="unexpected",verb="get"} 5`, `open{user="unexpected",verb="get"} 5`}, never: nil},
		"of a file": {args: []string{"--allow-metric-labels-manifest=" + manifest},
			want: []string{`asked_total{user="unexpected",verb="get"} 2`, `open{user="unexpected",verb="get"} 4`}, never: nil},
		"flag before file": {args: []string{"--allow-metric-labels-manifest=" + manifest, "--allow-metric-labels=open,user=ann"},
			want: []string{`asked_total{user="bob",verb="get"} 2`, `open{user="unexpected",verb="get"} 5`}, never: nil},
		"no file": {
			args:  []string{"--allow-metric-labels-manifest=/absent"},
			want:  []string{`asked_total{user="bob",verb="get"} 2`},
			never: nil,
		},
	} {
		lifecycle := parseLifecycle(t, test.args...)
		if errs := lifecycle.Validate(); len(errs) > 0 {
			t.Errorf("%s: errors = %v, want none", name, errs)
			continue
		}
		got := exportedLines(t, lifecycle, newTestRegistry())
		for _, want := range test.want {
			if !got[want] {
				t.Errorf("%s: want %s in %v", name, want, got)
			}
		}
		for _, never := range test.never {
			if got[never] {
				t.Errorf("%s: got metric %s, want it hidden", name, never)
			}
		}
	}
}

// TestCountersNeverFall checks that counts remain when their series are removed.
func TestCountersNeverFall(t *testing.T) {
	r := prometheus.NewRegistry()
	counterVec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "asked_total", Help: "[ALPHA] x"}, []string{"user"})
	r.MustRegister(counterVec)
	counterVec.WithLabelValues("bob").Add(7)
	gatherer, err := parseLifecycle(t, "--allow-metric-labels=asked_total,user=ann").Gatherer(r, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		text := scrape(t, gatherer, slog.New(slog.DiscardHandler))
		for _, want := range []string{"cardinality_enforcement_unexpected_categorizations_total 7\n",
			`registered_metrics_total{deprecated_version="",stability_level="ALPHA"} 1`} {
			if !strings.Contains(text, want) {
				t.Errorf("got metrics %s, want them to contain %q", text, want)
			}
		}
		counterVec.DeleteLabelValues("bob")
	}
}

// TestInvalidLifecycleFlagsAreRejected checks the errors for invalid flags and manifests.
func TestInvalidLifecycleFlagsAreRejected(t *testing.T) {
	manifest := filepath.Join(t.TempDir(), "labels.yaml")
	if err := os.WriteFile(manifest, []byte("asked_total: ann\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for arg, want := range map[string]string{
		"--show-hidden-metrics-for-version=1.33":  "--show-hidden-metrics-for-version must be omitted or have the value '1.32'. Only the previous minor version is allowed",
		"--show-hidden-metrics-for-version=1.31":  "must be omitted or have the value '1.32'",
		"--show-hidden-metrics-for-version=v1.32": "must be omitted or have the value '1.32'",
		"--allow-metric-labels=asked_total=ann":   "--allow-metric-labels must have a list of kv pair with format `metricName,labelName=labelValue, labelValue,...`",
		"--allow-metric-labels=1x,user=ann":       "must have a list of kv pair",
		"--allow-metric-labels=x,us-er=ann":       "must have a list of kv pair",
	} {
		errs := parseLifecycle(t, arg).Validate()
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), want) {
			t.Errorf("%s: %v, want %s", arg, errs, want)
		}
	}
	_, err := parseLifecycle(t, "--allow-metric-labels-manifest="+manifest).Gatherer(newTestRegistry(),
		slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), `"asked_total" is not of the form metric,label`) {
		t.Errorf("manifest with an invalid entry: got error %v, want one that names asked_total", err)
	}
}
