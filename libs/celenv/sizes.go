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

// check parses an expression and checks its types.
func (e *Env) check(expression string) (*cel.Ast, *cel.Issues) {
	source := common.NewTextSource(expression)
	parsed, issues := e.env.ParseSource(source)
	if issues.Err() != nil {
		return nil, issues
	}
	reject := func(id int64, format string, args ...any) (*cel.Ast, *cel.Issues) {
		errs := common.NewErrors(source)
		errs.ReportErrorAtID(id, parsed.NativeRep().SourceInfo().GetStartLocation(id), format, args...)
		return nil, cel.NewIssuesWithSourceInfo(errs, parsed.NativeRep().SourceInfo())
	}
	if at := tooManyMaps(parsed); at != nil {
		return reject(at.ID(), "more than %d maps with computed keys", maxComputedMaps)
	}
	if n := e.typeWork(parsed); n > maxTypeWork {
		return reject(parsed.NativeRep().Expr().ID(), "too many operators: split the expression into variables or several expressions")
	}
	return e.env.Check(parsed)
}
