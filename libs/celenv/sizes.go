package celenv

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
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

// check parses an expression and checks its types.
func (e *Env) check(expression string) (*cel.Ast, *cel.Issues) {
	source := common.NewTextSource(expression)
	parsed, issues := e.env.ParseSource(source)
	if issues.Err() != nil {
		return nil, issues
	}
	if at := tooManyMaps(parsed); at != nil {
		errs := common.NewErrors(source)
		errs.ReportErrorAtID(at.ID(), parsed.NativeRep().SourceInfo().GetStartLocation(at.ID()), "more than %d maps with computed keys", maxComputedMaps)
		return nil, cel.NewIssuesWithSourceInfo(errs, parsed.NativeRep().SourceInfo())
	}
	return e.env.Check(parsed)
}
