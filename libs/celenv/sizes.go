package celenv

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/decls"
)

// maxComputedMaps is the maximum number of maps with computed keys in an expression. Each such map
// can double the size of a value's type, as {x: x} does, and all operations on types take time
// proportional to that size.
const maxComputedMaps = 6

// tooManyMaps returns the first map beyond maxComputedMaps, or nil.
func tooManyMaps(parsed *cel.Ast) ast.Expr {
	found := 0
	var at ast.Expr
	ast.PostOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.MapKind {
			return
		}
		for _, entry := range e.AsMap().Entries() {
			if entry.AsMapEntry().Key().Kind() != ast.LiteralKind {
				if found++; found == maxComputedMaps+1 {
					at = e
				}
				return
			}
		}
	}))
	return at
}

// maxTypeWork bounds the work of checking the types of an expression. It is reached by about 500
// comparisons, and takes less than half a second.
const maxTypeWork = 2_000_000

// typeWork returns the number of parts of an expression times the number of generic ones: functions and
// operators for values of any type, and empty lists and maps. For each part, the type checker copies the
// types of the generic parts before it, and for a call it does so for each overload.
func (e *Env) typeWork(parsed *cel.Ast) int {
	parts, generic := 0, 0
	functions := e.env.Functions()
	ast.PostOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(x ast.Expr) {
		parts++
		switch x.Kind() {
		case ast.ListKind:
			if x.AsList().Size() == 0 {
				generic++
			}
		case ast.MapKind:
			if x.AsMap().Size() == 0 {
				generic += 2
			}
		case ast.CallKind:
			f := functions[x.AsCall().FunctionName()]
			if f == nil {
				return
			}
			parts += len(f.OverloadDecls())
			if isGeneric(f) {
				generic++
			}
		}
	}))
	return parts * generic
}

// isGeneric reports whether a function has overloads for values of any type.
func isGeneric(f *decls.FunctionDecl) bool {
	for _, o := range f.OverloadDecls() {
		if len(o.TypeParams()) > 0 {
			return true
		}
	}
	return false
}

// maxObjectWork bounds the work of checking the expressions of one object, in microseconds of a slow
// CPU. An object may have thousands of expressions, and the check does not end with the request.
const maxObjectWork = 10_000_000

const (
	// workPerByte is the work of parsing and checking a byte of an expression.
	workPerByte = 20
	// typesPerWork is the part of typeWork that takes as long as one unit of work.
	typesPerWork = 5
)

// CheckBudget limits the work of checking the expressions of one object. The zero value is a full budget. It is
// not safe for concurrent use.
type CheckBudget struct{ used int }

// spend reports whether the budget suffices for more work. A nil CheckBudget always does.
func (b *CheckBudget) spend(work int) bool {
	if b == nil {
		return true
	}
	b.used += work
	return b.used <= maxObjectWork
}

// Within returns an Env that charges a budget for each expression that it checks. It shares everything
// else with e.
func (e *Env) Within(b *CheckBudget) *Env {
	limited := *e
	limited.budget = b
	return &limited
}

// check parses an expression and checks its types.
func (e *Env) check(expression string) (*cel.Ast, *cel.Issues) {
	source := common.NewTextSource(expression)
	reject := func(at common.Location, format string, args ...any) (*cel.Ast, *cel.Issues) {
		errs := common.NewErrors(source)
		errs.ReportError(at, format, args...)
		return nil, cel.NewIssues(errs)
	}
	const tooMany = "the object has too many expressions"
	if !e.budget.spend(workPerByte * len(expression)) {
		return reject(common.NoLocation, tooMany)
	}
	parsed, issues := e.env.ParseSource(source)
	if issues.Err() != nil {
		return nil, issues
	}
	start := parsed.NativeRep().SourceInfo().GetStartLocation
	if at := tooManyMaps(parsed); at != nil {
		return reject(start(at.ID()), "more than %d maps with computed keys", maxComputedMaps)
	}
	work := e.typeWork(parsed)
	if work > maxTypeWork {
		return reject(start(parsed.NativeRep().Expr().ID()), "too many operators: split the expression into variables or several expressions")
	}
	if !e.budget.spend(work / typesPerWork) {
		return reject(common.NoLocation, tooMany)
	}
	return e.env.Check(parsed)
}
