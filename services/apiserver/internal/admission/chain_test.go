package admission_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"binnacle/services/apiserver/internal/admission"
)

// plugin writes down what it is asked; it refuses, asks again or claims as told.
type plugin struct {
	name   string
	told   *[]string
	again  bool
	refuse string // the phase that it refuses in
}

var errRefused = errors.New("refused")

func (p *plugin) say(phase string) error {
	*p.told = append(*p.told, p.name+" "+phase)
	if p.refuse == phase {
		return errRefused
	}
	return nil
}

func (p *plugin) Admit(_ context.Context, r *admission.Request) error {
	if p.again && !r.Reinvoked() {
		r.AskAgain()
	}
	return p.say(fmt.Sprintf("admit %t", r.Reinvoked()))
}

func (p *plugin) Validate(context.Context, *admission.Request) error { return p.say("validate") }

func (p *plugin) Claim(context.Context, *admission.Request) (admission.Claim, error) {
	if err := p.say("claim"); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *plugin) Keep(context.Context) { _ = p.say("keep") }
func (p *plugin) Drop(context.Context) { _ = p.say("drop") }

func TestChainAsksInOrder(t *testing.T) {
	for name, c := range map[string]struct {
		a, b    plugin
		refused bool
		want    []string
	}{
		"all agree": {
			want: []string{"a admit false", "b admit false", "a validate", "b validate", "a claim", "b claim", "b keep", "a keep"},
		},
		"a mutator asks again, once": {
			b: plugin{again: true},
			want: []string{"a admit false", "b admit false", "a admit true", "b admit true",
				"a validate", "b validate", "a claim", "b claim", "b keep", "a keep"},
		},
		"a mutator refuses": {
			a: plugin{refuse: "admit false", again: true}, refused: true, want: []string{"a admit false"},
		},
		"a validator refuses": {
			b: plugin{refuse: "validate"}, refused: true, want: []string{"a admit false", "b admit false", "a validate", "b validate"},
		},
		"a claim is refused: what was taken before is given back": {
			b: plugin{refuse: "claim"}, refused: true,
			want: []string{"a admit false", "b admit false", "a validate", "b validate", "a claim", "b claim", "a drop"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var told []string
			c.a.name, c.b.name, c.a.told, c.b.told = "a", "b", &told, &told
			chain := admission.NewChain(nil, admission.Plugin{Name: "a", Plugin: &c.a}, admission.Plugin{Name: "b", Plugin: &c.b})
			r := &admission.Request{Operation: admission.Create}
			if err := run(t.Context(), chain, r); (err != nil) != c.refused {
				t.Errorf("error %v, want one: %t", err, c.refused)
			}
			if !slices.Equal(told, c.want) {
				t.Errorf("asked\n%q, want\n%q", told, c.want)
			}
		})
	}
}

func run(ctx context.Context, c *admission.Chain, r *admission.Request) error {
	if err := c.Mutate(ctx, r); err != nil {
		return err
	}
	if err := c.Validate(ctx, r); err != nil {
		return err
	}
	claim, err := c.Claim(ctx, r)
	if err == nil {
		claim.Keep(ctx)
	}
	return err
}

func TestFirstAnnotationCounts(t *testing.T) {
	var r admission.Request
	r.Annotate("a", "1")
	r.Annotate("a", "2")
	if got := r.Annotations(); got["a"] != "1" || len(got) != 1 {
		t.Errorf("annotations %v", got)
	}
}
