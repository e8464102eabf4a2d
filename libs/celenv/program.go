package celenv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// ErrBudget says that several expressions together cost more than their budget.
var ErrBudget = errors.New("cost budget exceeded")

// Budget limits the total cost of several evaluations. It is not safe for concurrent use. A nil
// Budget is unlimited.
type Budget struct{ remaining uint64 }

// NewBudget returns a budget of the given units of cost.
func NewBudget(units uint64) *Budget { return &Budget{remaining: units} }

// spend subtracts a cost. It returns ErrBudget if the remaining units are not sufficient.
func (b *Budget) spend(cost uint64) error {
	if b == nil {
		return nil
	}
	if cost > b.remaining {
		b.remaining = 0
		return ErrBudget
	}
	b.remaining -= cost
	return nil
}

// Program is a compiled expression.
type Program struct {
	expression string
	ast        *cel.Ast
	runner     *Runner
}

// Expression returns the source text.
func (p *Program) Expression() string { return p.expression }

// OutputType returns the checked type of the expression.
func (p *Program) OutputType() *cel.Type { return p.ast.OutputType() }

// Eval evaluates the expression. It returns an error when ctx ends, at PerCallLimit, and when the
// budget is used up.
func (p *Program) Eval(ctx context.Context, variables map[string]any, budget *Budget) (ref.Val, error) {
	activation, err := interpreter.NewActivation(variables)
	if err != nil {
		return nil, fmt.Errorf("evaluation failed: %w", err)
	}
	out, cost, err := p.runner.Run(ctx, activation)
	budgetErr := budget.spend(cost)
	switch {
	case err != nil:
		return nil, fmt.Errorf("evaluation failed: %w", err)
	case budgetErr != nil:
		return nil, budgetErr
	}
	return out, nil
}

// Bool evaluates an expression of type bool.
func (p *Program) Bool(ctx context.Context, variables map[string]any, budget *Budget) (bool, error) {
	out, err := p.Eval(ctx, variables, budget)
	if err != nil {
		return false, err
	}
	b, ok := out.(types.Bool)
	if !ok {
		return false, fmt.Errorf("%w: evaluated to %s, not bool", ErrType, out.Type().TypeName())
	}
	return bool(b), nil
}

// ReadsField reports whether the expression reads a field of a variable as v.f, v.?f, v["f"] or
// v[?"f"]. A test for presence, has(v.f), does not count.
func (p *Program) ReadsField(variable, field string) bool {
	root := ast.NavigateAST(p.ast.NativeRep())
	return len(ast.MatchDescendants(root, func(e ast.NavigableExpr) bool { return isFieldRead(e, variable, field) })) > 0
}

func isFieldRead(expr ast.Expr, variable, field string) bool {
	switch expr.Kind() {
	case ast.SelectKind:
		s := expr.AsSelect()
		return !s.IsTestOnly() && s.FieldName() == field && isIdent(s.Operand(), variable)
	case ast.CallKind:
		c := expr.AsCall()
		switch c.FunctionName() {
		case operators.Index, operators.OptSelect, operators.OptIndex:
			return len(c.Args()) == 2 && isIdent(c.Args()[0], variable) && isString(c.Args()[1], field)
		}
	}
	return false
}

func isIdent(e ast.Expr, name string) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == name }

func isString(e ast.Expr, expected string) bool {
	return e.Kind() == ast.LiteralKind && e.AsLiteral().Equal(types.String(expected)) == types.True
}

// Runner is a checked expression that is ready to run. CEL's own programs plan an expression again
// for each evaluation whose cost is counted, and each program holds all functions. A Runner keeps
// plans for later evaluations and shares the functions with all Runners of its BaseEnv. It does not
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
	runner := &Runner{
		ast: checked.NativeRep(),
		interp: interpreter.NewInterpreter(e.functions, env.Container, env.CELTypeProvider(),
			env.CELTypeAdapter(), factory),
		standardCosts: e.standardCosts,
	}
	first, err := runner.newPlan()
	if err != nil {
		return nil, fmt.Errorf("program instantiation failed: %w", err)
	}
	runner.plans.Put(first)
	return runner, nil
}

// plan is an expression planned for one evaluation at a time.
type plan struct {
	interruptibleVariables
	meter meter
	steps interpreter.Interpretable
}

// newPlan prepares the expression for one evaluation at a time.
func (r *Runner) newPlan() (*plan, error) {
	p := &plan{meter: meter{
		limit: PerCallLimit, threshold: PerCallLimit,
		values: make([]ref.Val, ast.MaxID(r.ast)), stepCosts: make([][2]stepCost, ast.MaxID(r.ast)),
	}}
	p.meter.standardCosts = r.standardCosts
	var err error
	p.steps, err = r.interp.NewInterpretable(r.ast,
		makeOrLazy,
		p.meter.registerWeighedCall,
		interpreter.InterruptableEval(),
		interpreter.Optimize(),
		interpreter.CompileRegexConstants(constantPatterns()),
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
		if p, err = r.newPlan(); err != nil {
			return nil, 0, err
		}
		// How often expressions are planned depends on earlier evaluations, so the cost counts only for
		// the sum.
		costSumFrom(ctx).add(p.meter.planCost)
	}
	p.interruptibleVariables = interruptibleVariables{variables: variables, done: ctx.Done()}
	p.meter.costSum = costSumFrom(ctx)
	p.meter.threshold = min(p.meter.limit, p.meter.costSum.threshold())
	defer func() {
		cost = p.meter.cost
		p.meter.costSum.add(cost)
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
			p.interruptibleVariables = interruptibleVariables{}
			p.meter.reset()
			r.plans.Put(p)
		}
	}()
	result = p.steps.Eval(&p.interruptibleVariables)
	if types.IsError(result) {
		return nil, 0, result.(*types.Err)
	}
	return result, 0, nil
}

// interruptibleVariables lets loops detect the end of the context.
type interruptibleVariables struct {
	variables Activation
	done      <-chan struct{}
	checks    int
}

// interruptVariable is the variable that loops read to check for an interruption.
const interruptVariable = "#interrupted"

// ResolveName implements interpreter.Activation.
func (i *interruptibleVariables) ResolveName(name string) (any, bool) {
	if name != interruptVariable {
		return i.variables.ResolveName(name)
	}
	i.checks++
	if i.checks%interruptEvery != 0 {
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
func (i *interruptibleVariables) Parent() Activation { return i.variables }

// makeOrLazy replaces calls of or() and orValue() of optional values with an orCall. Other steps
// are returned unchanged. The planner calls it for each step.
func makeOrLazy(i interpreter.Interpretable) (interpreter.Interpretable, error) {
	call, ok := i.(interpreter.InterpretableCall)
	if !ok || len(call.Args()) != 2 {
		return i, nil
	}
	args, overload := call.Args(), call.OverloadID()
	switch {
	case call.Function() == "or" && (overload == "" || overload == "optional_or_optional"):
		return &orCall{id: call.ID(), first: args[0], second: args[1]}, nil
	case call.Function() == "orValue" && (overload == "" || overload == "optional_orValue_value"):
		return &orCall{id: call.ID(), first: args[0], second: args[1], unwrap: true}, nil
	}
	return i, nil
}

// orCall is a call of or() or orValue(). It evaluates second only if the optional first is empty.
// unwrap returns the value of first instead of the optional.
type orCall struct {
	id            int64
	first, second interpreter.Interpretable
	unwrap        bool
}

// ID implements interpreter.Interpretable.
func (f *orCall) ID() int64 { return f.id }

// Eval implements interpreter.Interpretable.
func (f *orCall) Eval(variables Activation) ref.Val {
	v := f.first.Eval(variables)
	optional, ok := v.(*types.Optional)
	switch {
	case !ok:
		return v
	case !optional.HasValue():
		return f.second.Eval(variables)
	case f.unwrap:
		return optional.GetValue()
	}
	return optional
}

// Lazy is an object that computes each field once, when an expression first reads it. It is not
// safe for concurrent use.
type Lazy struct {
	opaque
	names  []string
	find   func(name string) ref.Val
	values map[string]ref.Val
}

var (
	_ traits.Mapper = (*Lazy)(nil)
	_ traits.Zeroer = (*Lazy)(nil)
)

// NewLazy returns an object of a type with the named fields. find computes the value of a field.
func NewLazy(kind *types.Type, names []string, find func(name string) ref.Val) *Lazy {
	return &Lazy{opaque: opaque{kind: kind}, names: names, find: find, values: map[string]ref.Val{}}
}

// Find implements traits.Mapper.
func (l *Lazy) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(key), true
	}
	if !slices.Contains(l.names, string(name)) {
		return nil, false
	}
	value, ok := l.values[string(name)]
	if !ok {
		value = l.find(string(name))
		l.values[string(name)] = value
	}
	return value, true
}

// Get implements traits.Indexer.
func (l *Lazy) Get(key ref.Val) ref.Val {
	if v, ok := l.Find(key); ok {
		return v
	}
	return types.NewErr("no such key: %v", key)
}

// Contains implements traits.Container.
func (l *Lazy) Contains(key ref.Val) ref.Val {
	name, ok := key.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(key)
	}
	return types.Bool(slices.Contains(l.names, string(name)))
}

// Iterator implements traits.Iterable, over the names.
func (l *Lazy) Iterator() traits.Iterator {
	return types.NewStringList(types.DefaultTypeAdapter, l.names).Iterator()
}

// Size implements traits.Sizer.
func (l *Lazy) Size() ref.Val { return types.Int(len(l.names)) }

// IsZeroValue implements traits.Zeroer.
func (l *Lazy) IsZeroValue() bool { return len(l.names) == 0 }

// Equal implements ref.Val. Lazy objects cannot be compared.
func (*Lazy) Equal(other ref.Val) ref.Val { return types.MaybeNoSuchOverloadErr(other) }

// ConvertToType implements ref.Val.
func (l *Lazy) ConvertToType(to ref.Type) ref.Val { return l.convert(l, to) }

// Value implements ref.Val.
func (l *Lazy) Value() any { return l }
