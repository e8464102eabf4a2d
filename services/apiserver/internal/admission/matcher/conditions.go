package matcher

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"binnacle/libs/celenv"
	"binnacle/services/apiserver/internal/cel/expressions"
)

// conditionsBudget is the total CEL cost that the conditions of one webhook or policy may have per
// request.
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
	err              error // compilation error; program is nil then
}

// CompileConditions compiles match conditions. It returns nil, which always matches, for an empty
// list. A condition that does not compile makes Match fail. If failClosed is set, Match then
// returns an error; otherwise it reports that the conditions do not match.
func CompileConditions(
	compiler *expressions.Compiler,
	variables expressions.VariableSet,
	matchConditions []admissionregistrationv1.MatchCondition,
	failClosed bool,
) *Conditions {
	if len(matchConditions) == 0 {
		return nil
	}
	out := &Conditions{failClosed: failClosed}
	for _, matchCondition := range matchConditions {
		program, err := compiler.Compile(variables, matchCondition.Expression, cel.BoolType)
		out.conditions = append(out.conditions, condition{name: matchCondition.Name, expression: matchCondition.Expression, program: program, err: err})
	}
	return out
}

// Match reports whether all conditions are true. If a condition is false, Match also returns its
// name, even if an earlier condition cannot be evaluated. If no condition is false but some cannot
// be evaluated, Match returns their errors if the conditions fail closed, and otherwise false
// without an error.
func (c *Conditions) Match(ctx context.Context, in *expressions.Input) (ok bool, falseName string, err error) {
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
		isTrue, err := condition.program.Bool(ctx, values, budget)
		switch {
		case errors.Is(err, celenv.ErrBudget):
			errs = append(errs, errBudget)
			return c.notEvaluated(errs)
		case err != nil:
			// The message of Kubernetes contains the error of CEL without a prefix of ours.
			if inner := errors.Unwrap(err); inner != nil {
				err = inner
			}
			errs = append(errs, fmt.Errorf("expression '%s' resulted in error: %w", condition.expression, err))
		case !isTrue:
			return false, condition.name, nil
		}
	}
	if len(errs) > 0 {
		return c.notEvaluated(errs)
	}
	return true, "", nil
}

// notEvaluated returns the result of Match when no condition is false and errs is not empty.
func (c *Conditions) notEvaluated(errs []error) (bool, string, error) {
	if !c.failClosed {
		return false, "", nil
	}
	return false, "", utilerrors.NewAggregate(errs)
}
