package podsecurity

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/pod-security-admission/api"
)

// decision is the result of an evaluation, as the value of a metric label.
type decision string

const (
	allow decision = "allow"
	deny  decision = "deny"
)

// mode is the mode in which a standard was evaluated, as the value of a metric label.
type mode string

const (
	enforce mode = "enforce"
	audit   mode = "audit"
	warn    mode = "warn"
)

// Metrics holds the metrics of evaluations, under the names of Kubernetes.
type Metrics struct {
	evaluations, exemptions, errors *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: "[ALPHA] " + help}, labels)
		r.MustRegister(c)
		return c
	}
	metrics := &Metrics{
		evaluations: counter(
			"pod_security_evaluations_total",
			"Number of policy evaluations that occurred, not counting ignored or exempt requests.",
			"decision",
			"policy_level",
			"policy_version",
			"mode",
			"request_operation",
			"resource",
			"subresource",
		),
		exemptions: counter(
			"pod_security_exemptions_total",
			"Number of exempt requests, not counting ignored or out of scope requests.",
			"request_operation",
			"resource",
			"subresource",
		),
		errors: counter(
			"pod_security_errors_total",
			"Number of errors preventing normal evaluation. Non-fatal errors may result in the latest restricted profile being used for evaluation.",
			"fatal",
			"request_operation",
			"resource",
			"subresource",
		),
	}
	metrics.initialize()
	return metrics
}

// initialize creates the series that Kubernetes reports from the start, with the value zero.
func (m *Metrics) initialize() {
	for _, operation := range []string{"create", "update"} {
		m.evaluations.WithLabelValues(
			string(allow),
			string(api.LevelPrivileged),
			api.LatestVersion().String(),
			string(enforce),
			operation,
			"pod",
			"",
		)
		for _, resource := range []string{"pod", "controller"} {
			m.exemptions.WithLabelValues(operation, resource, "")
		}
	}
}

// newestVersion is the newest minor version of Kubernetes whose policies are known.
const newestVersion = 33

// recordEvaluation counts an evaluation by a standard in a mode. Versions after newestVersion
// have the label "future", which bounds the number of series.
func (m *Metrics) recordEvaluation(outcome decision, standard api.LevelVersion, mode mode, attrs api.Attributes) {
	version := standard.Version.String()
	newest := api.MajorMinorVersion(1, newestVersion)
	switch {
	case standard.Level == api.LevelPrivileged: // regardless of the version
		version = api.LatestVersion().String()
	case !standard.Version.Latest() && newest.Older(standard.Version):
		version = "future"
	}
	m.evaluations.WithLabelValues(append([]string{string(outcome), string(standard.Level), version, string(mode)}, labels(attrs)...)...).Inc()
}

// recordExemption counts an exempt request.
func (m *Metrics) recordExemption(attrs api.Attributes) {
	m.exemptions.WithLabelValues(labels(attrs)...).Inc()
}

// recordError counts an evaluation with an error. fatal reports whether the object was not evaluated.
func (m *Metrics) recordError(fatal bool, attrs api.Attributes) {
	m.errors.WithLabelValues(append([]string{strconv.FormatBool(fatal)}, labels(attrs)...)...).Inc()
}

// labels returns the values of the labels request_operation, resource and subresource.
func labels(attrs api.Attributes) []string {
	resource := "controller"
	switch attrs.GetResource().Group + "/" + attrs.GetResource().Resource {
	case "/pods":
		resource = "pod"
	case "/namespaces":
		resource = "namespace"
	}
	return []string{strings.ToLower(string(attrs.GetOperation())), resource, attrs.GetSubresource()}
}
