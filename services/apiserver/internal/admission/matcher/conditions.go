package matcher

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"binnacle/libs/celenv"
	"binnacle/services/apiserver/internal/cel/expressions"
)

// conditionsBudget is the cost limit of all conditions of one webhook or policy together.
const conditionsBudget = 2_500_000

// errBudget has the wording of Kubernetes.
var errBudget = errors.New("validation failed due to running out of cost budget, no further validation rules will be run")

// Conditions holds expressions that must all be true.
type Conditions struct {
	conditions []condition
	// failClosed makes Match return an error if a condition cannot be evaluated and none is false.
	failClosed bool
}

// condition is a compiled match condition.
type condition struct {
	name, expression string
	program          *celenv.Program
	err              error // of the compilation
}

// CompileConditions returns the conditions, or nil for an empty list. A condition that does not
// compile fails when it is evaluated.
func CompileConditions(c *expressions.Compiler, variables expressions.VariableSet, list []admissionv1.MatchCondition, failClosed bool) *Conditions {
	if len(list) == 0 {
		return nil
	}
	out := &Conditions{failClosed: failClosed}
	for _, m := range list {
		p, err := c.Compile(variables, m.Expression, cel.BoolType)
		out.conditions = append(out.conditions, condition{m.Name, m.Expression, p, err})
	}
	return out
}

// Match reports whether all conditions are true. If not, it returns the name of the first false
// condition. If no condition is false and some cannot be evaluated, it returns their errors, or only
// false if the conditions do not fail closed.
func (c *Conditions) Match(ctx context.Context, in *expressions.Input) (ok bool, failed string, err error) {
	if c == nil {
		return true, "", nil
	}
	var errs []error
	budget := celenv.NewBudget(conditionsBudget)
	values := in.Values()
	for i := range c.conditions {
		condition := &c.conditions[i]
		if condition.err != nil {
			errs = append(errs, condition.err)
			continue
		}
		holds, err := condition.program.Bool(ctx, values, budget)
		switch {
		case errors.Is(err, celenv.ErrBudget):
			errs = append(errs, errBudget)
			return c.failure(errs)
		case err != nil:
			if inner := errors.Unwrap(err); inner != nil {
				err = inner
			}
			errs = append(errs, fmt.Errorf("expression '%s' resulted in error: %w", condition.expression, err))
		case !holds:
			return false, condition.name, nil
		}
	}
	if len(errs) > 0 {
		return c.failure(errs)
	}
	return true, "", nil
}

func (c *Conditions) failure(errs []error) (bool, string, error) {
	if !c.failClosed {
		return false, "", nil
	}
	return false, "", utilerrors.NewAggregate(errs)
}
