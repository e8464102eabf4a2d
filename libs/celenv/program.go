package celenv

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// ErrBudget says that several expressions together cost more than their budget.
var ErrBudget = errors.New("cost budget exceeded")

// Budget limits the total cost of several evaluations. It is not safe for concurrent use. A nil
// Budget is unlimited.
type Budget struct{ left uint64 }

// NewBudget returns a budget of the given units of cost.
func NewBudget(units uint64) *Budget { return &Budget{left: units} }

func (b *Budget) spend(cost uint64) error {
	if b == nil {
		return nil
	}
	if cost > b.left {
		b.left = 0
		return ErrBudget
	}
	b.left -= cost
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
	given, err := interpreter.NewActivation(variables)
	if err != nil {
		return nil, fmt.Errorf("evaluation failed: %w", err)
	}
	out, cost, err := p.runner.Run(ctx, given)
	over := budget.spend(cost)
	switch {
	case err != nil:
		return nil, fmt.Errorf("evaluation failed: %w", err)
	case over != nil:
		return nil, over
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

// Reads reports whether the expression reads a field of a variable as v.f, v.?f, v["f"] or v[?"f"].
// A test for presence, has(v.f), does not count.
func (p *Program) Reads(variable, field string) bool {
	root := ast.NavigateAST(p.ast.NativeRep())
	return len(ast.MatchDescendants(root, func(e ast.NavigableExpr) bool { return reads(e, variable, field) })) > 0
}

func reads(e ast.Expr, variable, field string) bool {
	switch e.Kind() {
	case ast.SelectKind:
		s := e.AsSelect()
		return !s.IsTestOnly() && s.FieldName() == field && isIdent(s.Operand(), variable)
	case ast.CallKind:
		c := e.AsCall()
		switch c.FunctionName() {
		case operators.Index, operators.OptSelect, operators.OptIndex:
			return len(c.Args()) == 2 && isIdent(c.Args()[0], variable) && isString(c.Args()[1], field)
		}
	}
	return false
}

func isIdent(e ast.Expr, name string) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == name }

func isString(e ast.Expr, want string) bool {
	return e.Kind() == ast.LiteralKind && e.AsLiteral().Equal(types.String(want)) == types.True
}
