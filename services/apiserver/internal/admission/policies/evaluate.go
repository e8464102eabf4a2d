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
	// policyBudget is the total CEL cost of a policy's validations for one request and parameter.
	// The policy's audit annotations have a budget of the same size, and so has each mutation.
	policyBudget = 10_000_000
	// maxMessage is the maximum length in bytes of a message from an expression.
	maxMessage = 5 << 10
)

// errBudget has the wording of Kubernetes.
var errBudget = errors.New("validation failed due to running out of cost budget, no further validation rules will be run")

// decision is the result of one validation.
type decision struct {
	// denied reports that the expression did not return true.
	denied bool
	// failed reports that the expression could not be evaluated. The failure policy then decides
	// whether the request is denied.
	failed   bool
	message  string
	reason   metav1.StatusReason
	class    string // error class for metrics
	duration time.Duration
}

// auditAnnotation is an evaluated audit annotation: its value, or the error of the expression.
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

// values returns the values that expressions see. withAuthorizer adds the authorizer, which message
// expressions do not have. Each call evaluates the policy's variables again, because their inputs
// may differ. Variables charge their cost to budget.
func (e *policyEvaluation) values(withAuthorizer bool, budget *trackedBudget) map[string]any {
	input := e.input
	if !withAuthorizer {
		input.Authorizer = nil
		input.RequestResource = nil
	}
	if len(e.variables.names) == 0 {
		return input.Values()
	}
	// A variable may refer to earlier variables, so its inputs include input.Variables itself.
	var values map[string]any
	input.Variables = expressions.Variables(e.variables.names, func(name string) (ref.Val, error) {
		p := e.variables.programs[name]
		return budget.evalRaw(e.ctx, &p, values)
	})
	values = input.Values()
	return values
}

// trackedBudget is a CEL cost budget that several expressions share. exhausted is set once an
// expression exceeded the budget; no further expression is evaluated then.
type trackedBudget struct {
	budget    *celenv.Budget
	exhausted bool
}

func newTrackedBudget() *trackedBudget { return &trackedBudget{budget: celenv.NewBudget(policyBudget)} }

// evalRaw evaluates an expression against the budget. Errors are those of CEL, without a prefix.
func (b *trackedBudget) evalRaw(ctx context.Context, p *program, values map[string]any) (ref.Val, error) {
	if p.err != nil {
		return nil, fmt.Errorf("compilation error: %w", p.err)
	}
	value, err := p.Eval(ctx, values, b.budget)
	if errors.Is(err, celenv.ErrBudget) {
		b.exhausted = true
		return nil, err
	}
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	return value, err
}

// eval evaluates an expression against the budget. Errors have the wording that Kubernetes uses for
// validations, annotations and mutations.
func (b *trackedBudget) eval(ctx context.Context, p *program, values map[string]any) (ref.Val, error) {
	value, err := b.evalRaw(ctx, p, values)
	if b.exhausted {
		return nil, errBudget
	}
	if err != nil && p.err == nil {
		err = fmt.Errorf("expression '%s' resulted in error: %w", p.Program.Expression(), err)
	}
	return value, err
}

// validate evaluates all validations and returns a decision for each. If the budget is exceeded, it
// returns a single failed decision.
func (e *policyEvaluation) validate() []decision {
	if len(e.validations) == 0 {
		return nil
	}
	budget := newTrackedBudget()
	values := e.values(true, budget)
	decisions := make([]decision, len(e.validations))
	for i := range e.validations {
		validation := &e.validations[i]
		result := &decisions[i]
		start := time.Now()
		value, err := budget.eval(e.ctx, &validation.program, values)
		result.duration = time.Since(start)
		switch {
		case budget.exhausted:
			return []decision{failedDecision(errBudget, errorBudget)}
		case err != nil:
			*result = failedDecision(err, errorClassOf(&validation.program))
		case value != types.True:
			result.denied = true
			result.reason = validation.reason
		}
	}
	e.setMessages(decisions, budget)
	return decisions
}

// setMessages sets the message of each denied decision: the result of the message expression if
// it is valid, else the policy's fixed message, else the expression itself.
func (e *policyEvaluation) setMessages(decisions []decision, budget *trackedBudget) {
	var values map[string]any // created when first needed
	for i := range decisions {
		result := &decisions[i]
		validation := &e.validations[i]
		if !result.denied || result.failed {
			continue
		}
		if validation.messageProgram != nil {
			if values == nil {
				values = e.values(false, budget)
			}
			value, err := budget.eval(e.ctx, validation.messageProgram, values)
			if budget.exhausted {
				*result = failedDecision(fmt.Errorf("failed messageExpression: %w", errBudget), errorBudget)
				continue
			}
			if text, ok := valueAs[string](value); ok && err == nil {
				text = strings.TrimSpace(text)
				if len(text) <= maxMessage && !strings.Contains(text, "\n") {
					result.message = text
				}
			}
		}
		if result.message == "" {
			result.message = validation.message
		}
		if result.message == "" {
			result.message = "failed expression: " + strings.TrimSpace(validation.program.expression)
		}
	}
}

// failedDecision returns the decision for a policy that could not be evaluated. class is the error
// class for metrics.
func failedDecision(err error, class string) decision {
	return decision{denied: true, failed: true, message: err.Error(), class: class}
}

// errorClassOf returns the error class, for metrics, of a program that returned an error.
func errorClassOf(p *program) string {
	if p.err != nil {
		return errorCompile
	}
	return errorInvalid
}

// valueAs returns the Go value of a CEL value. It returns false if value is nil or has another type.
func valueAs[T any](value ref.Val) (T, bool) {
	var none T
	if value == nil {
		return none, false
	}
	t, ok := value.Value().(T)
	return t, ok
}

// auditAnnotations evaluates the audit annotations of the policy. It omits annotations whose value
// is null or blank. It returns an error only if the budget is exceeded.
func (e *policyEvaluation) auditAnnotations() ([]auditAnnotation, error) {
	if len(e.annotations) == 0 {
		return nil, nil
	}
	budget := newTrackedBudget()
	values := e.values(true, budget)
	var out []auditAnnotation
	for i := range e.annotations {
		annotation := &e.annotations[i]
		value, err := budget.eval(e.ctx, &annotation.program, values)
		if budget.exhausted {
			return nil, errBudget
		}
		if err != nil {
			out = append(out, auditAnnotation{key: annotation.key, err: err})
			continue
		}
		if text, ok := valueAs[string](value); ok && strings.TrimSpace(text) != "" {
			out = append(out, auditAnnotation{key: annotation.key, value: strings.TrimSpace(text)})
		}
	}
	return out, nil
}
