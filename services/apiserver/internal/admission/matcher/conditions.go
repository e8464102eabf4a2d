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
	list []condition
	// closed rejects the request if a condition cannot be evaluated and none is false.
	closed bool
}

// condition is a compiled match condition.
type condition struct {
	name, expression string
	program          *celenv.Program
	err              error // of the compilation
}

// CompileConditions returns the conditions, or nil for an empty list. A condition that does not
// compile fails when it is evaluated.
func CompileConditions(c *expressions.Compiler, sees expressions.VariableSet, list []admissionv1.MatchCondition, closed bool) *Conditions {
	if len(list) == 0 {
		return nil
	}
	out := &Conditions{closed: closed}
	for _, m := range list {
		p, err := c.Compile(sees, m.Expression, cel.BoolType)
		out.list = append(out.list, condition{m.Name, m.Expression, p, err})
	}
	return out
}

// Hold reports whether all conditions are true. If not, it returns the name of the first false one.
// A false condition takes precedence over errors. The error covers the conditions that cannot be
// evaluated.
func (c *Conditions) Hold(ctx context.Context, in *expressions.Input) (ok bool, failed string, err error) {
	if c == nil {
		return true, "", nil
	}
	var errs []error
	budget := celenv.NewBudget(conditionsBudget)
	values := in.Values()
	for i := range c.list {
		m := &c.list[i]
		if m.err != nil {
			errs = append(errs, m.err)
			continue
		}
		yes, err := m.program.Bool(ctx, values, budget)
		switch {
		case errors.Is(err, celenv.ErrBudget):
			errs = append(errs, errBudget)
			return c.failed(errs)
		case err != nil:
			if inner := errors.Unwrap(err); inner != nil {
				err = inner
			}
			errs = append(errs, fmt.Errorf("expression '%s' resulted in error: %w", m.expression, err))
		case !yes:
			return false, m.name, nil
		}
	}
	if len(errs) > 0 {
		return c.failed(errs)
	}
	return true, "", nil
}

func (c *Conditions) failed(errs []error) (bool, string, error) {
	if !c.closed {
		return false, "", nil
	}
	return false, "", utilerrors.NewAggregate(errs)
}
