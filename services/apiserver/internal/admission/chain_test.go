package admission_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"binnacle/services/apiserver/internal/admission"
)

// plugin records its calls. It rejects the phase in refuse, and requests reinvocation if again is
// set.
type plugin struct {
	name     string
	calls    *[]string
	reinvoke bool
	reject   string // the phase to reject
}

var errRejected = errors.New("refused")

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
	if err := p.record("claim"); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *plugin) Commit(context.Context)   { _ = p.record("keep") }
func (p *plugin) Rollback(context.Context) { _ = p.record("drop") }

func TestChainCallsPluginsInOrder(t *testing.T) {
	for name, c := range map[string]struct {
		a, b     plugin
		rejected bool
		want     []string
	}{
		"all plugins agree": {
			want: []string{"a admit false", "b admit false", "a validate", "b validate", "a claim", "b claim", "b keep", "a keep"},
		},
		"a mutator requests reinvocation": {
			b: plugin{reinvoke: true},
			want: []string{"a admit false", "b admit false", "a admit true", "b admit true",
				"a validate", "b validate", "a claim", "b claim", "b keep", "a keep"},
		},
		"a mutator rejects": {
			a: plugin{reject: "admit false", reinvoke: true}, rejected: true, want: []string{"a admit false"},
		},
		"a validator rejects": {
			b: plugin{reject: "validate"}, rejected: true, want: []string{"a admit false", "b admit false", "a validate", "b validate"},
		},
		"a claimer rejects": {
			b: plugin{reject: "claim"}, rejected: true,
			want: []string{"a admit false", "b admit false", "a validate", "b validate", "a claim", "b claim", "a drop"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var calls []string
			c.a.name, c.b.name, c.a.calls, c.b.calls = "a", "b", &calls, &calls
			chain := admission.NewChain(nil, admission.Plugin{Name: "a", Plugin: &c.a}, admission.Plugin{Name: "b", Plugin: &c.b})
			r := &admission.Request{Operation: admission.Create}
			if err := runPhases(t.Context(), chain, r); (err != nil) != c.rejected {
				t.Errorf("got error %v, want an error: %t", err, c.rejected)
			}
			if !slices.Equal(calls, c.want) {
				t.Errorf("got calls\n%q, want\n%q", calls, c.want)
			}
		})
	}
}

func runPhases(ctx context.Context, c *admission.Chain, r *admission.Request) error {
	if err := c.Mutate(ctx, r); err != nil {
		return err
	}
	if err := c.Validate(ctx, r); err != nil {
		return err
	}
	claim, err := c.Reserve(ctx, r)
	if err == nil {
		claim.Commit(ctx)
	}
	return err
}

func TestFirstAnnotationWins(t *testing.T) {
	var r admission.Request
	r.Annotate("a", "1")
	r.Annotate("a", "2")
	if got := r.Annotations(); got["a"] != "1" || len(got) != 1 {
		t.Errorf("got annotations %v; want \"1\", length 1", got)
	}
}
