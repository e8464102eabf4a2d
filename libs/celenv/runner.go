package celenv

import (
	"context"
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// Runner is a checked expression that is ready to run. CEL's own programs plan an expression again
// for each evaluation whose cost is counted, and each program holds all functions. A Runner keeps
// plans for later evaluations and shares the functions with all Runners of its Base. It does not
// retain its Env.
type Runner struct {
	ast    *ast.AST
	interp interpreter.Interpreter
	plans  sync.Pool // of *plan
	// standardCosts is the setting of the Env.
	standardCosts bool
}

// Activation holds the values of variables.
type Activation = interpreter.Activation

// Runner prepares a checked expression to run.
func (e *Env) Runner(checked *cel.Ast) (*Runner, error) {
	env := e.env
	factory := interpreter.NewAttributeFactory(env.Container, env.CELTypeAdapter(), env.CELTypeProvider())
	r := &Runner{
		ast:           checked.NativeRep(),
		interp:        interpreter.NewInterpreter(e.functions, env.Container, env.CELTypeProvider(), env.CELTypeAdapter(), factory),
		standardCosts: e.standardCosts,
	}
	first, err := r.plan()
	if err != nil {
		return nil, fmt.Errorf("program instantiation failed: %w", err)
	}
	r.plans.Put(first)
	return r, nil
}

// plan is an expression planned for one evaluation at a time.
type plan struct {
	interruptible
	meter meter
	steps interpreter.Interpretable
}

func (r *Runner) plan() (*plan, error) {
	p := &plan{meter: newMeter(PerCallLimit, ast.MaxID(r.ast))}
	p.meter.standardCosts = r.standardCosts
	var err error
	p.steps, err = r.interp.NewInterpretable(r.ast,
		orElse,
		p.meter.weigh,
		interpreter.InterruptableEval(),
		interpreter.Optimize(),
		interpreter.CompileRegexConstants(interpreter.MatchesRegexOptimization),
		interpreter.Observe(p.meter.observe),
	)
	p.meter.reset() // planning evaluates constants
	return p, err
}

// Run evaluates the expression and returns the result and the cost, also with an error. It returns
// an error when ctx ends and at PerCallLimit.
func (r *Runner) Run(ctx context.Context, variables Activation) (result ref.Val, cost uint64, err error) {
	p, _ := r.plans.Get().(*plan)
	if p == nil {
		if p, err = r.plan(); err != nil {
			return nil, 0, err
		}
	}
	p.interruptible = interruptible{variables: variables, done: ctx.Done()}
	p.meter.expense = expenseOf(ctx)
	p.meter.bound = min(p.meter.limit, p.meter.expense.bound())
	defer func() {
		cost = p.meter.cost
		p.meter.expense.spent(cost)
		if problem := recover(); problem != nil {
			// The plan may be in the middle of a loop, so it is not reused.
			cancelled, ok := problem.(interpreter.EvalCancelledError)
			if ok {
				err = cancelled
			} else {
				err = fmt.Errorf("internal error: %v", problem)
			}
			result = nil
		} else {
			p.interruptible = interruptible{}
			p.meter.reset()
			r.plans.Put(p)
		}
	}()
	result = p.steps.Eval(&p.interruptible)
	if types.IsError(result) {
		return nil, 0, result.(*types.Err)
	}
	return result, 0, nil
}

// interruptible lets loops detect the end of the context.
type interruptible struct {
	variables Activation
	done      <-chan struct{}
	asked     int
}

// interrupted is the variable that loops read to check for an interruption.
const interrupted = "#interrupted"

// ResolveName implements interpreter.Activation.
func (i *interruptible) ResolveName(name string) (any, bool) {
	if name != interrupted {
		return i.variables.ResolveName(name)
	}
	if i.asked++; i.asked%interruptEvery != 0 {
		return nil, false
	}
	select {
	case <-i.done:
		return true, true
	default:
		return nil, false
	}
}

// Parent implements interpreter.Activation.
func (i *interruptible) Parent() Activation { return i.variables }

// orElse makes or and orValue of optional values evaluate their second operand only if the first
// has no value.
func orElse(i interpreter.Interpretable) (interpreter.Interpretable, error) {
	call, ok := i.(interpreter.InterpretableCall)
	if !ok || len(call.Args()) != 2 {
		return i, nil
	}
	args, overload := call.Args(), call.OverloadID()
	switch {
	case call.Function() == "or" && (overload == "" || overload == "optional_or_optional"):
		return &fallback{id: call.ID(), first: args[0], second: args[1]}, nil
	case call.Function() == "orValue" && (overload == "" || overload == "optional_orValue_value"):
		return &fallback{id: call.ID(), first: args[0], second: args[1], unwrap: true}, nil
	}
	return i, nil
}

type fallback struct {
	id            int64
	first, second interpreter.Interpretable
	unwrap        bool
}

// ID implements interpreter.Interpretable.
func (f *fallback) ID() int64 { return f.id }

// Eval implements interpreter.Interpretable.
func (f *fallback) Eval(variables Activation) ref.Val {
	v := f.first.Eval(variables)
	o, ok := v.(*types.Optional)
	switch {
	case !ok:
		return v
	case !o.HasValue():
		return f.second.Eval(variables)
	case f.unwrap:
		return o.GetValue()
	}
	return o
}
