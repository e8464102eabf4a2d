package writes

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry"
)

// TestDeclaredRulesRunBesideHandwritten runs declarative rules beside handwritten ones: errors that
// both find, errors that one of them finds, and a panic.
func TestDeclaredRulesRunBesideHandwritten(t *testing.T) {
	path := field.NewPath("spec", "replicas")
	covered := func() *field.Error {
		return field.Invalid(path, -1, "too low").WithOrigin("minimum").MarkCoveredByDeclarative()
	}
	declared := func() *field.Error { return field.Invalid(path, -1, "must be 0 or more").WithOrigin("minimum") }
	other := field.Required(field.NewPath("spec", "selector"), "")
	finds := func(errs ...*field.Error) func(registry.Object) field.ErrorList {
		return func(registry.Object) field.ErrorList { return errs }
	}
	for _, test := range []struct {
		name     string
		gates    DeclarativeValidationOptions
		written  field.ErrorList
		declared func(registry.Object) field.ErrorList
		want     []string
		// Expected values of the counters of mismatches and panics.
		mismatches, panics float64
	}{
		{
			name:    "no declared rules",
			gates:   DeclarativeValidationOptions{true, true},
			written: field.ErrorList{other},
			want:    []string{other.Error()},
		},
		{
			name:     "disabled",
			written:  field.ErrorList{other, covered()},
			declared: finds(),
			want:     []string{other.Error(), covered().Error()},
		},
		{
			name:     "enabled, equal errors",
			gates:    DeclarativeValidationOptions{Enabled: true},
			written:  field.ErrorList{other, covered()},
			declared: finds(declared()),
			want:     []string{other.Error(), covered().Error()},
		},
		{
			name:       "enabled, only handwritten errors",
			gates:      DeclarativeValidationOptions{Enabled: true},
			written:    field.ErrorList{covered()},
			declared:   finds(),
			want:       []string{covered().Error()},
			mismatches: 1,
		},
		{
			name:       "enabled, only declared errors",
			gates:      DeclarativeValidationOptions{Enabled: true},
			declared:   finds(declared()),
			mismatches: 1,
		},
		{
			name:     "takeover",
			gates:    DeclarativeValidationOptions{Enabled: true, Takeover: true},
			written:  field.ErrorList{covered(), other},
			declared: finds(declared()),
			want:     []string{other.Error(), declared().Error()},
		},
		{
			name:       "takeover, different errors",
			gates:      DeclarativeValidationOptions{Enabled: true, Takeover: true},
			written:    field.ErrorList{covered()},
			declared:   finds(field.Invalid(path, -1, "odd").WithOrigin("maximum")),
			want:       []string{`spec.replicas: Invalid value: -1: odd`},
			mismatches: 2,
		},
		{
			name:     "enabled, declared validation panics",
			gates:    DeclarativeValidationOptions{Enabled: true},
			written:  field.ErrorList{other},
			declared: func(registry.Object) field.ErrorList { panic("no") },
			want:     []string{other.Error()},
			panics:   1,
		},
		{
			name:       "takeover, declared validation panics",
			gates:      DeclarativeValidationOptions{Enabled: true, Takeover: true},
			written:    field.ErrorList{other},
			declared:   func(registry.Object) field.ErrorList { panic("no") },
			want:       []string{other.Error(), "<nil>: Internal error: panic during declarative validation: no"},
			mismatches: 1,
			panics:     1,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			metrics := prometheus.NewRegistry()
			w := &Writer{Config: Config{Declared: test.gates, Metrics: NewMetrics(metrics), Logger: slog.New(slog.DiscardHandler)}}
			var got []string
			for _, e := range w.addDeclarativeErrors(
				&registry.Kind{DeclarativeValidation: test.declared},
				&corev1.ReplicationController{},
				test.written,
			) {
				got = append(got, e.Error())
			}
			if len(got) != len(test.want) {
				t.Fatalf("got errors %q, want %q", got, test.want)
			}
			for i := range got {
				if got[i] != test.want[i] {
					t.Errorf("error %d: got %q, want %q", i, got[i], test.want[i])
				}
			}
			for name, want := range map[string]float64{
				"apiserver_validation_declarative_validation_mismatch_total": test.mismatches,
				"apiserver_validation_declarative_validation_panic_total":    test.panics,
			} {
				if n := counterValue(t, metrics, name); n != want {
					t.Errorf("%s: got %v, want %v", name, n, want)
				}
			}
		})
	}
}

// counterValue returns the value of a counter without labels.
func counterValue(t *testing.T, from prometheus.Gatherer, name string) float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.Metric[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
