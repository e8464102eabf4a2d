package policies

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/celenv"
	"binnacle/services/apiserver/internal/cel/expressions"
)

const (
	// policyBudget is the cost limit of a policy's validations, and also of its annotations, for
	// one request and parameter.
	policyBudget = 10_000_000
	// maxMessage is the maximum length in bytes of a message from an expression.
	maxMessage = 5 << 10
)

// errBudget has the wording of Kubernetes.
var errBudget = errors.New("validation failed due to running out of cost budget, no further validation rules will be run")

// decision is the result of a validation.
type decision struct {
	// denied is true unless the expression was true.
	denied bool
	// failed states that there is no result. The policy determines the consequence.
	failed   bool
	message  string
	reason   metav1.StatusReason
	class    string // error class for metrics
	duration time.Duration
}

// auditAnnotation is an audit annotation. Excluded annotations are omitted.
type auditAnnotation struct {
	key, value string
	err        error
}

// policyEvaluation is the evaluation of one policy for one request and one parameter.
type policyEvaluation struct {
	*rules
	ctx   context.Context
	input expressions.Input
}

// values returns the values that expressions see. Variables are evaluated again for each call,
// because their inputs may differ.
func (o *policyEvaluation) values(authorizer bool, budget *trackedBudget) map[string]any {
	in := o.input
	if !authorizer {
		in.Authorizer = nil
		in.RequestResource = nil
	}
	if len(o.variables.names) == 0 {
		return in.Values()
	}
	var values map[string]any
	in.Variables = expressions.Variables(o.variables.names, func(name string) (ref.Val, error) {
		p := o.variables.programs[name]
		return budget.eval(o.ctx, &p, values)
	})
	values = in.Values()
	return values
}

// trackedBudget is a cost budget that several expressions share. It records that it is exhausted.
type trackedBudget struct {
	budget    *celenv.Budget
	exhausted bool
}

func newTrackedBudget() *trackedBudget { return &trackedBudget{budget: celenv.NewBudget(policyBudget)} }

// eval evaluates an expression, such as a variable, against the budget.
func (s *trackedBudget) eval(ctx context.Context, p *program, values map[string]any) (ref.Val, error) {
	if p.err != nil {
		return nil, fmt.Errorf("compilation error: %w", p.err)
	}
	v, err := p.Eval(ctx, values, s.budget)
	if errors.Is(err, celenv.ErrBudget) {
		s.exhausted = true
		return nil, err
	}
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	return v, err
}

// run evaluates the expression of a rule. Errors have the wording of Kubernetes.
func (s *trackedBudget) run(ctx context.Context, p *program, values map[string]any) (ref.Val, error) {
	v, err := s.eval(ctx, p, values)
	if s.exhausted {
		return nil, errBudget
	}
	if err != nil && p.err == nil {
		err = fmt.Errorf("expression '%s' resulted in error: %w", p.Program.Expression(), err)
	}
	return v, err
}

// validate runs all validations.
func (o *policyEvaluation) validate() []decision {
	if len(o.validations) == 0 {
		return nil
	}
	spent := newTrackedBudget()
	values := o.values(true, spent)
	out := make([]decision, len(o.validations))
	for i := range o.validations {
		r := &o.validations[i]
		d := &out[i]
		begin := time.Now()
		v, err := spent.run(o.ctx, &r.program, values)
		d.duration = time.Since(begin)
		switch {
		case spent.exhausted:
			return []decision{failedDecision(errBudget, errorBudget)}
		case err != nil:
			*d = failedDecision(err, classOf(&r.program))
		case v != types.True:
			d.denied = true
			d.reason = r.reason
		}
	}
	o.setMessages(out, spent)
	return out
}

// setMessages sets the messages of failed validations.
func (o *policyEvaluation) setMessages(out []decision, spent *trackedBudget) {
	var values map[string]any
	for i := range out {
		d := &out[i]
		r := &o.validations[i]
		if !d.denied || d.failed {
			continue
		}
		if r.expression != nil {
			if values == nil {
				values = o.values(false, spent)
			}
			v, err := spent.run(o.ctx, r.expression, values)
			if spent.exhausted {
				*d = failedDecision(fmt.Errorf("failed messageExpression: %w", errBudget), errorBudget)
				continue
			}
			if text, ok := valueAs[string](v); ok && err == nil {
				text = strings.TrimSpace(text)
				if len(text) <= maxMessage && !strings.Contains(text, "\n") {
					d.message = text
				}
			}
		}
		if d.message == "" {
			d.message = r.message
		}
		if d.message == "" {
			d.message = "failed expression: " + strings.TrimSpace(r.program.expression)
		}
	}
}

// failedDecision returns the decision of a policy that could not be evaluated.
func failedDecision(err error, class string) decision {
	return decision{denied: true, failed: true, message: err.Error(), class: class}
}

// classOf returns the error class of a program that returned an error.
func classOf(p *program) string {
	if p.err != nil {
		return errorCompile
	}
	return errorInvalid
}

// valueAs returns the Go value of a CEL value, or false if it has another type.
func valueAs[T any](v ref.Val) (T, bool) {
	var none T
	if v == nil {
		return none, false
	}
	t, ok := v.Value().(T)
	return t, ok
}

// auditAnnotations evaluates the audit annotations of the policy.
func (o *policyEvaluation) auditAnnotations() ([]auditAnnotation, error) {
	if len(o.annotations) == 0 {
		return nil, nil
	}
	spent := newTrackedBudget()
	values := o.values(true, spent)
	var out []auditAnnotation
	for i := range o.annotations {
		a := &o.annotations[i]
		v, err := spent.run(o.ctx, &a.program, values)
		if spent.exhausted {
			return nil, errBudget
		}
		if err != nil {
			out = append(out, auditAnnotation{key: a.key, err: err})
			continue
		}
		if text, ok := valueAs[string](v); ok && strings.TrimSpace(text) != "" {
			out = append(out, auditAnnotation{key: a.key, value: strings.TrimSpace(text)})
		}
	}
	return out, nil
}
