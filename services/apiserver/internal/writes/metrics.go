package writes

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Declared says what the rules that fields declare are for (specification,
// "Declarative validation"): with Enabled they run beside the written ones, and
// differences are logged and counted; with Takeover their findings count.
type Declared struct{ Enabled, Takeover bool }

// Metrics count what goes wrong with declared rules.
type Metrics struct{ mismatches, panics prometheus.Counter }

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
	r.MustRegister(m.mismatches, m.panics)
	return m
}
