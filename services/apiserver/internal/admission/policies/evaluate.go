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
func (e *policyEvaluation) values(authorizer bool, budget *trackedBudget) map[string]any {
	input := e.input
	if !authorizer {
		input.Authorizer = nil
		input.RequestResource = nil
	}
	if len(e.variables.names) == 0 {
		return input.Values()
	}
	var values map[string]any
	input.Variables = expressions.Variables(e.variables.names, func(name string) (ref.Val, error) {
		p := e.variables.programs[name]
		return budget.eval(e.ctx, &p, values)
	})
	values = input.Values()
	return values
}

// trackedBudget is a cost budget that several expressions share. It records that it is exhausted.
type trackedBudget struct {
	budget    *celenv.Budget
	exhausted bool
}

func newTrackedBudget() *trackedBudget { return &trackedBudget{budget: celenv.NewBudget(policyBudget)} }

// eval evaluates an expression, such as a variable, against the budget.
func (b *trackedBudget) eval(ctx context.Context, p *program, values map[string]any) (ref.Val, error) {
	if p.err != nil {
		return nil, fmt.Errorf("compilation error: %w", p.err)
	}
	v, err := p.Eval(ctx, values, b.budget)
	if errors.Is(err, celenv.ErrBudget) {
		b.exhausted = true
		return nil, err
	}
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	return v, err
}

// run evaluates the expression of a rule. Errors have the wording of Kubernetes.
func (b *trackedBudget) run(ctx context.Context, p *program, values map[string]any) (ref.Val, error) {
	v, err := b.eval(ctx, p, values)
	if b.exhausted {
		return nil, errBudget
	}
	if err != nil && p.err == nil {
		err = fmt.Errorf("expression '%s' resulted in error: %w", p.Program.Expression(), err)
	}
	return v, err
}

// validate runs all validations.
func (e *policyEvaluation) validate() []decision {
	if len(e.validations) == 0 {
		return nil
	}
	budget := newTrackedBudget()
	values := e.values(true, budget)
	out := make([]decision, len(e.validations))
	for i := range e.validations {
		r := &e.validations[i]
		d := &out[i]
		start := time.Now()
		v, err := budget.run(e.ctx, &r.program, values)
		d.duration = time.Since(start)
		switch {
		case budget.exhausted:
			return []decision{failedDecision(errBudget, errorBudget)}
		case err != nil:
			*d = failedDecision(err, classOf(&r.program))
		case v != types.True:
			d.denied = true
			d.reason = r.reason
		}
	}
	e.setMessages(out, budget)
	return out
}

// setMessages sets the messages of failed validations.
func (e *policyEvaluation) setMessages(out []decision, budget *trackedBudget) {
	var values map[string]any
	for i := range out {
		d := &out[i]
		r := &e.validations[i]
		if !d.denied || d.failed {
			continue
		}
		if r.expression != nil {
			if values == nil {
				values = e.values(false, budget)
			}
			v, err := budget.run(e.ctx, r.expression, values)
			if budget.exhausted {
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
func (e *policyEvaluation) auditAnnotations() ([]auditAnnotation, error) {
	if len(e.annotations) == 0 {
		return nil, nil
	}
	budget := newTrackedBudget()
	values := e.values(true, budget)
	var out []auditAnnotation
	for i := range e.annotations {
		a := &e.annotations[i]
		v, err := budget.run(e.ctx, &a.program, values)
		if budget.exhausted {
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
