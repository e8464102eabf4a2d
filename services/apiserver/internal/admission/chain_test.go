package admission_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"binnacle/services/apiserver/internal/admission"
)

// plugin records its calls.
type plugin struct {
	name     string
	calls    *[]string
	reinvoke bool   // request reinvocation
	reject   string // phase to reject: "admit false", "validate" or "reserve"
}

// errRejected is the error of a phase that a plugin rejects.
var errRejected = errors.New("rejected")

func (p *plugin) record(phase string) error {
	*p.calls = append(*p.calls, p.name+" "+phase)
	if p.reject == phase {
		return errRejected
	}
	return nil
}

func (p *plugin) Admit(_ context.Context, r *admission.Request) error {
	if p.reinvoke && !r.Reinvoked() {
		r.RequestReinvocation()
	}
	return p.record(fmt.Sprintf("admit %t", r.Reinvoked()))
}

func (p *plugin) Validate(context.Context, *admission.Request) error { return p.record("validate") }

func (p *plugin) Reserve(context.Context, *admission.Request) (admission.Reservation, error) {
	if err := p.record("reserve"); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *plugin) Commit(context.Context)   { _ = p.record("commit") }
func (p *plugin) Rollback(context.Context) { _ = p.record("rollback") }

// TestChainCallsPluginsInOrder checks the order of the phases and of the plugins in each phase. A
// rejection ends the request and rolls reservations back.
func TestChainCallsPluginsInOrder(t *testing.T) {
	for name, test := range map[string]struct {
		a, b         plugin // the chain's plugins, in this order
		wantRejected bool
		want         []string // calls: plugin, phase and, for admit, whether it is the reinvocation
	}{
		"all plugins agree": {
			want: []string{"a admit false", "b admit false", "a validate", "b validate", "a reserve", "b reserve", "b commit", "a commit"},
		},
		"a mutator requests reinvocation": {
			b: plugin{reinvoke: true},
			want: []string{"a admit false", "b admit false", "a admit true", "b admit true",
				"a validate", "b validate", "a reserve", "b reserve", "b commit", "a commit"},
		},
		"a mutator rejects": {
			a: plugin{reject: "admit false", reinvoke: true}, wantRejected: true, want: []string{"a admit false"},
		},
		"a validator rejects": {
			b: plugin{reject: "validate"}, wantRejected: true, want: []string{"a admit false", "b admit false", "a validate", "b validate"},
		},
		"a quota plugin rejects": {
			b: plugin{reject: "reserve"}, wantRejected: true,
			want: []string{"a admit false", "b admit false", "a validate", "b validate", "a reserve", "b reserve", "a rollback"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var calls []string
			test.a.name, test.b.name, test.a.calls, test.b.calls = "a", "b", &calls, &calls
			chain := admission.NewChain(nil, admission.Plugin{Name: "a", Plugin: &test.a}, admission.Plugin{Name: "b", Plugin: &test.b})
			r := &admission.Request{Operation: admission.Create}
			if err := runPhases(t.Context(), chain, r); (err != nil) != test.wantRejected {
				t.Errorf("got error %v, want an error: %t", err, test.wantRejected)
			}
			if !slices.Equal(calls, test.want) {
				t.Errorf("got calls\n%q, want\n%q", calls, test.want)
			}
		})
	}
}

// runPhases runs all phases of a request that is written successfully.
func runPhases(ctx context.Context, chain *admission.Chain, req *admission.Request) error {
	if err := chain.Mutate(ctx, req); err != nil {
		return err
	}
	if err := chain.Validate(ctx, req); err != nil {
		return err
	}
	reservation, err := chain.Reserve(ctx, req)
	if err == nil {
		reservation.Commit(ctx)
	}
	return err
}

// TestFirstAnnotationWins checks that a later value of an annotation is ignored.
func TestFirstAnnotationWins(t *testing.T) {
	var req admission.Request
	req.Annotate("policy", "first")
	req.Annotate("policy", "second")
	if got := req.Annotations(); got["policy"] != "first" || len(got) != 1 {
		t.Errorf("got annotations %v, want only policy=first", got)
	}
}
