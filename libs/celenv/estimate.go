package celenv

import (
	"math"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/types"
)

var unitCost = checker.CostEstimate{Min: 1, Max: 1}

// EstimateSize implements checker.CostEstimator.
func (c Costs) EstimateSize(element checker.AstNode) *checker.SizeEstimate {
	if c.Sizes == nil {
		return nil
	}
	return c.Sizes.EstimateSize(element)
}

// size returns the known or estimated size of a node, or a range without an upper limit.
func (c Costs) size(n checker.AstNode) checker.SizeEstimate {
	if s := n.ComputedSize(); s != nil {
		return *s
	}
	if s := c.EstimateSize(n); s != nil {
		return *s
	}
	return checker.SizeEstimate{Max: math.MaxUint64}
}

func traversalCost(s checker.SizeEstimate) checker.CostEstimate {
	return s.MultiplyByCostFactor(common.StringTraversalCostFactor)
}

func costOnly(cost checker.CostEstimate) *checker.CallEstimate {
	return &checker.CallEstimate{CostEstimate: cost}
}

// EstimateCallCost implements checker.CostEstimator. Functions that are not members have no target;
// some of them have CEL's own estimate for that reason.
func (c Costs) EstimateCallCost(function, overload string, target *checker.AstNode,
	args []checker.AstNode) *checker.CallEstimate {
	class := costClasses[function]
	switch {
	case function == "_==_":
		return estimateEqual(args)
	case class == costConstant:
		return costOnly(unitCost)
	case class == costAuthorize:
		return costOnly(checker.CostEstimate{Min: authorizeCost, Max: authorizeCost})
	case function == "url":
		if len(args) == 1 {
			s := c.size(args[0])
			return &checker.CallEstimate{CostEstimate: traversalCost(s), ResultSize: &s}
		}
	case class == costUnknown || target == nil:
		return nil
	case function == "ip":
		if overload == "cidr_ip" || len(args) == 0 {
			return costOnly(unitCost)
		}
		return costOnly(traversalCost(c.size(args[0])))
	case class == costTraverse:
		return c.estimateTraversal(*target)
	case class == costSearch:
		return c.estimateSearch(*target, args)
	case class == costJoin:
		return c.estimateJoin(*target, args)
	case function == "replace":
		return c.estimateReplace(*target, args)
	case function == "split":
		return c.estimateSplit(*target, args)
	case class == costContainsIP, class == costContainsCIDR:
		return c.estimateContains(class, overload, args)
	case function == "cidr", function == "isIP", function == "isCIDR", function == "quantity",
		function == "isQuantity", function == "semver", function == "isSemver":
		return costOnly(traversalCost(c.size(args[0])))
	case class == costCanonicalText:
		return costOnly(c.size(args[0]).MultiplyByCostFactor(2 * common.StringTraversalCostFactor))
	case class == costValidate:
		return costOnly(traversalCost(c.size(args[0])).MultiplyByCostFactor(namedPatternLen * common.RegexStringLengthCostFactor))
	case class == costReadText:
		s := c.size(*target)
		return &checker.CallEstimate{CostEstimate: traversalCost(s), ResultSize: &s}
	}
	return nil
}

// estimateEqual estimates the cost of comparing values of this package's types.
func estimateEqual(args []checker.AstNode) *checker.CallEstimate {
	if len(args) != 2 || args[0].Type().Equal(args[1].Type()) != types.True {
		return nil
	}
	switch args[0].Type().TypeName() {
	case addressType.TypeName(), networkType.TypeName(), QuantityType.TypeName(), versionType.TypeName():
		return costOnly(unitCost)
	case formatType.TypeName():
		return costOnly(checker.CostEstimate{Min: 1, Max: formatNameLen}.MultiplyByCostFactor(common.StringTraversalCostFactor))
	case urlType.TypeName():
		size := checker.SizeEstimate{Min: 1, Max: 1}
		if s := args[1].ComputedSize(); s != nil {
			size = *s
		}
		return costOnly(checker.CostEstimate{Min: 1, Max: size.Max}.MultiplyByCostFactor(common.StringTraversalCostFactor))
	}
	return nil
}

// estimateTraversal estimates the cost of functions that read each element of a list, and the text
// of elements that are strings or bytes. listIndexOf and lastIndexOf may also have a text as their
// target.
func (c Costs) estimateTraversal(target checker.AstNode) *checker.CallEstimate {
	element := elementOf(target)
	if element == nil { // the target is a text
		return costOnly(traversalCost(c.size(target)))
	}
	each := unitCost
	if k := element.Type().Kind(); k == types.StringKind || k == types.BytesKind {
		each = each.Add(traversalCost(c.size(element)))
	}
	return costOnly(c.size(target).MultiplyByCost(each))
}

// estimateSearch estimates the cost of matching a regular expression.
func (c Costs) estimateSearch(target checker.AstNode, args []checker.AstNode) *checker.CallEstimate {
	if len(args) == 0 {
		return nil
	}
	text := c.size(target)
	read := text.Add(checker.SizeEstimate{Min: 1, Max: 1}).MultiplyByCostFactor(common.StringTraversalCostFactor)
	pattern := c.size(args[0]).MultiplyByCostFactor(common.RegexStringLengthCostFactor)
	return &checker.CallEstimate{CostEstimate: read.Multiply(pattern), ResultSize: &checker.SizeEstimate{Max: text.Max}}
}

// estimateJoin estimates the cost and the result size of join.
func (c Costs) estimateJoin(target checker.AstNode, args []checker.AstNode) *checker.CallEstimate {
	var size checker.SizeEstimate
	list := c.size(target)
	if element := elementOf(target); element != nil {
		size = list.Multiply(c.size(element))
	}
	if len(args) > 0 {
		between := checker.SizeEstimate{Min: max(list.Min, 1) - 1, Max: max(list.Max, 1) - 1}
		size = size.Add(c.size(args[0]).Multiply(between))
	}
	return &checker.CallEstimate{CostEstimate: traversalCost(size), ResultSize: &size}
}

// estimateReplace estimates the cost and the result size of replace.
func (c Costs) estimateReplace(target checker.AstNode, args []checker.AstNode) *checker.CallEstimate {
	if len(args) < 2 {
		return nil
	}
	text := c.size(target)
	old := c.size(args[0])
	replacement := c.size(args[1])
	var count, unreplaced checker.SizeEstimate
	switch {
	case old.Min == 0: // an empty text is replaced before, between and after all characters
		count.Max, unreplaced.Max = saturatingAddOne(text.Max), text.Max
	case replacement.Max <= old.Min:
		unreplaced.Max = text.Max
	default:
		count.Max = uint64(math.Ceil(float64(text.Max) / float64(old.Min)))
	}
	switch {
	case old.Max == 0:
		count.Min, unreplaced.Min = saturatingAddOne(text.Min), text.Min
	case old.Max <= replacement.Min:
		unreplaced.Min = text.Min
	default:
		count.Min = uint64(math.Ceil(float64(text.Min) / float64(old.Max)))
	}
	size := count.Multiply(replacement).Add(unreplaced)
	return &checker.CallEstimate{CostEstimate: text.MultiplyByCostFactor(2 * common.StringTraversalCostFactor), ResultSize: &size}
}

func saturatingAddOne(n uint64) uint64 {
	if n < math.MaxUint64 {
		n++
	}
	return n
}

// estimateSplit estimates the cost and the number of parts of split.
func (c Costs) estimateSplit(target checker.AstNode, args []checker.AstNode) *checker.CallEstimate {
	text := c.size(target)
	parts := text.Max
	if len(args) > 1 && args[1].Expr().Kind() == ast.LiteralKind {
		if n, ok := args[1].Expr().AsLiteral().Value().(int64); ok {
			parts = uint64(n)
		}
	}
	return &checker.CallEstimate{
		CostEstimate: text.MultiplyByCostFactor(2 * common.StringTraversalCostFactor),
		ResultSize:   &checker.SizeEstimate{Max: parts},
	}
}

// estimateContains estimates the cost of costContainsIP and costContainsCIDR.
func (c Costs) estimateContains(class costClass, overload string, args []checker.AstNode) *checker.CallEstimate {
	if len(args) == 0 {
		return nil
	}
	bytes := checker.SizeEstimate{Min: ipv4Bytes, Max: ipv6Bytes}
	cost := traversalCost(bytes.Add(bytes))
	if class == costContainsCIDR {
		cost = cost.Add(traversalCost(bytes)).Add(unitCost)
	}
	if overload == "cidr_contains_ip_string" || overload == "cidr_contains_cidr_string" {
		cost = cost.Add(checker.CostEstimate(c.size(args[0])).MultiplyByCostFactor(common.StringTraversalCostFactor))
	}
	return costOnly(cost)
}

// elementOf returns a node for the elements of a list, or nil.
func elementOf(list checker.AstNode) checker.AstNode {
	params := list.Type().Parameters()
	if len(params) == 0 {
		return nil
	}
	e := &listElement{elementType: params[0]}
	if path := list.Path(); path != nil {
		e.path = append(append(make([]string, 0, len(path)+1), path...), "@items")
	}
	return e
}

// listElement implements checker.AstNode.
type listElement struct {
	path        []string
	elementType *types.Type
}

// Path implements checker.AstNode.
func (e *listElement) Path() []string { return e.path }

// Type implements checker.AstNode.
func (e *listElement) Type() *types.Type { return e.elementType }

// Expr implements checker.AstNode.
func (e *listElement) Expr() ast.Expr { return nil }

// ComputedSize implements checker.AstNode.
func (e *listElement) ComputedSize() *checker.SizeEstimate { return nil }

// maxComputedMaps is the maximum number of maps with computed keys in an expression. Each such map
// can double the size of a value's type, as {x: x} does, and all operations on types take time
// proportional to that size.
const maxComputedMaps = 6

// firstExcessMap returns the first map beyond maxComputedMaps, or nil.
func firstExcessMap(parsed *cel.Ast) ast.Expr {
	found := 0
	var excess ast.Expr
	ast.PostOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(expr ast.Expr) {
		if expr.Kind() != ast.MapKind {
			return
		}
		for _, entry := range expr.AsMap().Entries() {
			if entry.AsMapEntry().Key().Kind() != ast.LiteralKind {
				found++
				if found == maxComputedMaps+1 {
					excess = expr
				}
				return
			}
		}
	}))
	return excess
}

// maxTypeWork bounds the work of checking the types of an expression. It is reached by about 500
// comparisons, and takes less than half a second.
const maxTypeWork = 2_000_000

// typeWork returns the number of parts of an expression times the number of generic ones: functions
// and operators for values of any type, and empty lists and maps. For each part, the type checker
// copies the types of the generic parts before it, and for a call it does so for each overload.
func (e *Env) typeWork(parsed *cel.Ast) int {
	parts, generic := 0, 0
	functions := e.env.Functions()
	ast.PostOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(expr ast.Expr) {
		parts++
		switch expr.Kind() {
		case ast.ListKind:
			if expr.AsList().Size() == 0 {
				generic++
			}
		case ast.MapKind:
			if expr.AsMap().Size() == 0 {
				generic += 2
			}
		case ast.CallKind:
			functionDecl := functions[expr.AsCall().FunctionName()]
			if functionDecl == nil {
				return
			}
			parts += len(functionDecl.OverloadDecls())
			if isGeneric(functionDecl) {
				generic++
			}
		}
	}))
	return parts * generic
}

func isGeneric(f *decls.FunctionDecl) bool {
	return slices.ContainsFunc(f.OverloadDecls(), func(o *decls.OverloadDecl) bool { return len(o.TypeParams()) > 0 })
}

// maxObjectWork bounds the work of checking the expressions of one object, in microseconds of a
// slow CPU. An object may have thousands of expressions, and the check does not end with the
// request.
const maxObjectWork = 10_000_000

const (
	// workPerByte is the work of parsing and checking a byte of an expression.
	workPerByte = 20
	// typesPerWork is the part of typeWork that takes as long as one unit of work.
	typesPerWork = 5
)

// CheckBudget limits the work of checking the expressions of one object. The zero value is a full
// budget. It is not safe for concurrent use.
type CheckBudget struct{ used int }

// spend reports whether the budget suffices for more work. A nil CheckBudget always does.
func (b *CheckBudget) spend(work int) bool {
	if b == nil {
		return true
	}
	b.used += work
	return b.used <= maxObjectWork
}

// Within returns an Env that charges a budget for each expression that it checks. It shares
// everything else with e.
func (e *Env) Within(b *CheckBudget) *Env {
	limited := *e
	limited.budget = b
	return &limited
}

// Check parses an expression and checks its types. It rejects expressions that take too long to
// check.
func (e *Env) Check(expression string) (*cel.Ast, *cel.Issues) {
	source := common.NewTextSource(expression)
	reject := func(excess common.Location, format string, args ...any) (*cel.Ast, *cel.Issues) {
		errs := common.NewErrors(source)
		errs.ReportError(excess, format, args...)
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
	if excess := firstExcessMap(parsed); excess != nil {
		return reject(start(excess.ID()), "more than %d maps with computed keys", maxComputedMaps)
	}
	work := e.typeWork(parsed)
	if work > maxTypeWork {
		return reject(start(parsed.NativeRep().Expr().ID()),
			"too many operators: split the expression into variables or several expressions")
	}
	if !e.budget.spend(work / typesPerWork) {
		return reject(common.NoLocation, tooMany)
	}
	return e.env.Check(parsed)
}
