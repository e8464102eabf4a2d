package writes

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Declared configures declarative validation (specification: "Declarative validation"). With
// Enabled it runs beside the handwritten validation, and differences are logged and counted. With
// Takeover its errors apply.
type Declared struct{ Enabled, Takeover bool }

// Metrics counts failures of declarative validation. It also measures how long an update compares
// the object with the stored one, by result: the managed fields differ, other fields differ, or the
// objects are equal.
type Metrics struct {
	mismatches, panics prometheus.Counter
	fast, slow, equal  prometheus.Observer
}

func NewMetrics(r prometheus.Registerer) Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "apiserver", Subsystem: "validation", Name: name, Help: "[BETA] " + help,
		})
	}
	m := Metrics{
		mismatches: counter("declarative_validation_mismatch_total",
			"Number of times declarative validation results differed from handwritten validation results for core types."),
		panics: counter("declarative_validation_panic_total", "Number of times declarative validation has panicked during validation."),
	}
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "apiserver_request_timestamp_comparison_time", Help: "[ALPHA] Time in seconds to compare the object of an update or patch with the stored one.",
		Buckets: []float64{0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 5.0},
	}, []string{"code_path"})
	m.fast, m.slow, m.equal = v.WithLabelValues("unequalObjectsFast"), v.WithLabelValues("unequalObjectsSlow"), v.WithLabelValues("equalObjectsSlow")
	r.MustRegister(m.mismatches, m.panics, v)
	return m
}

// compared records the duration of a comparison. It does nothing without an observer.
func (m *Metrics) compared(path prometheus.Observer, begin time.Time) {
	if path != nil {
		path.Observe(time.Since(begin).Seconds())
	}
}
