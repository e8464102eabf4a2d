package metrics

import (
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// filteredGatherer is a gatherer that omits disabled and hidden metrics, and merges label values
// that are not allowed.
type filteredGatherer struct {
	source        prometheus.Gatherer
	disabled      map[string]bool
	disabledCount int // number of names given
	showHidden    bool
	allowed       map[string]map[string][]string

	mu sync.Mutex // guards the fields below; leaf lock
	// registered and hidden are the metrics seen so far.
	registered map[string]metricLifecycle
	hidden     map[string]bool
	// unexpected is how much was counted under values that are not allowed.
	unexpected float64
}

// metricLifecycle is the lifecycle in the help of a metric.
type metricLifecycle struct{ stability, deprecated string }

// unexpectedValue replaces values that are not allowed.
const unexpectedValue = "unexpected"

// Gather implements prometheus.Gatherer.
func (s *filteredGatherer) Gather() ([]*dto.MetricFamily, error) {
	families, err := s.source.Gather()
	s.mu.Lock()
	defer s.mu.Unlock()
	unexpected := 0.0
	families = slices.DeleteFunc(families, func(metricFamily *dto.MetricFamily) bool {
		lifecycle := readHelp(metricFamily.GetHelp())
		if lifecycle.deprecated != "" && parseRelease(lifecycle.deprecated).before(currentRelease()) && !s.showHidden {
			s.hidden[metricFamily.GetName()] = true
			return true
		}
		if s.disabled[metricFamily.GetName()] {
			return true
		}
		if lifecycle.stability != "" {
			s.registered[metricFamily.GetName()] = lifecycle
		}
		if labels := s.allowed[metricFamily.GetName()]; labels != nil {
			unexpected += mergeDisallowed(metricFamily, labels)
		}
		return false
	})
	s.unexpected = max(s.unexpected, unexpected) // series may disappear, but a counter must not decrease
	for _, metricFamily := range s.metricsAboutMetrics() {
		if !s.disabled[metricFamily.GetName()] {
			families = append(families, metricFamily)
		}
	}
	slices.SortFunc(families, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return families, err
}

// readHelp parses the stability at the start of a help text, and the version that deprecated
// the metric.
func readHelp(help string) (lifecycle metricLifecycle) {
	help = strings.TrimPrefix(help, "EXPERIMENTAL: ")
	stability, text, ok := strings.Cut(help, "] ")
	if !ok || !strings.HasPrefix(stability, "[") {
		return lifecycle
	}
	lifecycle.stability = stability[1:]
	if since, ok := strings.CutPrefix(text, "(Deprecated since "); ok {
		lifecycle.deprecated, _, _ = strings.Cut(since, ")")
	}
	return lifecycle
}

// metricsAboutMetrics returns the metrics that count registered, disabled and hidden metrics.
func (s *filteredGatherer) metricsAboutMetrics() []*dto.MetricFamily {
	counts := map[metricLifecycle]float64{}
	for _, lifecycle := range s.registered {
		counts[lifecycle]++
	}
	registered := counterFamily("registered_metrics_total",
		"[BETA] Metrics that this process has shown so far, by their stability and the version since which they are deprecated.")
	for lifecycle, n := range counts {
		registered.Metric = append(registered.Metric, &dto.Metric{
			Label:   []*dto.LabelPair{{Name: new("deprecated_version"), Value: new(lifecycle.deprecated)}, {Name: new("stability_level"), Value: new(lifecycle.stability)}},
			Counter: &dto.Counter{Value: new(n)},
		})
	}
	slices.SortFunc(registered.Metric, func(a, b *dto.Metric) int { return strings.Compare(labelKeyOf(a), labelKeyOf(b)) })
	out := []*dto.MetricFamily{
		counterFamily("disabled_metrics_total", "[BETA] Metrics that are disabled.", float64(s.disabledCount)),
		counterFamily("hidden_metrics_total",
			"[BETA] Metrics that are hidden, because they have been deprecated since an earlier release.",
			float64(len(s.hidden))),
		counterFamily("cardinality_enforcement_unexpected_categorizations_total",
			"[ALPHA] How often a label had a value that is not allowed, and was counted as unexpected.", s.unexpected),
	}
	if len(registered.Metric) > 0 {
		out = append(out, registered)
	}
	return out
}

func counterFamily(name, help string, values ...float64) *dto.MetricFamily {
	f := &dto.MetricFamily{Name: new(name), Help: new(help), Type: dto.MetricType_COUNTER.Enum()}
	for _, v := range values {
		f.Metric = append(f.Metric, &dto.Metric{Counter: &dto.Counter{Value: new(v)}})
	}
	return f
}
