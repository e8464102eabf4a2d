package celenv

import (
	"reflect"
	"regexp/syntax"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"

	"binnacle/libs/regexcost"
)

// meter counts the cost of an evaluation, as cel-go's interpreter.CostTracker does. That tracker
// keeps values on a stack, which grows with each iteration of a loop and is then searched, so a loop
// takes quadratic time. The meter keeps only the last value of each step, by the step's id.
//
//   - A step is one node of the planned expression, such as a name, a constant or a call.
//   - The cost is the number that CEL counts for the steps and compares with the limit.
//   - The weight of a value measures how long it takes to read (see weight.go). Weight beyond
//     freeWeight adds to the cost.
//
// A meter serves one evaluation at a time, and is reset between them.
type meter struct {
	cost  uint64
	limit uint64 // the evaluation is cancelled when its cost exceeds it
	// threshold is the cost beyond which observe calls handleExceededThreshold: the rest of costSum
	// if that is lower than limit, otherwise limit.
	threshold uint64
	costSum   *CostSum  // the sum over several evaluations; nil if there is none
	values    []ref.Val // the last value of each step, by step id
	// stepCosts caches the cost of each step, by id. Each id has two entries, because a name and its
	// last qualifier are two steps with one id.
	stepCosts [][2]stepCost
	args      []ref.Val // arguments of the current call
	// weighedCalls holds the calls that are charged by the weight of their arguments, by the id of
	// the last argument. The charge is due when that argument has a value, before the call.
	weighedCalls map[int64]weighedCall
	// standardCosts selects the costs of CEL itself: calls cost standardCost, and callCost, which
	// has the costs of Kubernetes' functions, is not used.
	standardCosts bool
	// freeWeightUsed is how much weight was read at no cost, at most freeWeight.
	freeWeightUsed uint64
	// planCost is the cost of compiling the constant patterns that the plan keeps.
	planCost uint64
}

// stepCost is the cost of a step.
type stepCost struct {
	step  any       // nil if the entry is unused
	fixed uint64    // cost that does not depend on values
	call  *callStep // set if the step calls a function, which costs extra
}

// callStep is a step that calls a function.
type callStep struct {
	function, overload string
	args               []int64 // step ids
	dependsOnValues    bool    // the cost depends on the arguments or the result
	isAddition         bool    // the function is the operator +
	isFindAll          bool    // the function is findAll
}

// Names of step types that CEL does not export.
const (
	conditionalType  = "*interpreter.conditionalAttribute"
	presenceTestType = "*interpreter.evalTestOnly"
)

// observe implements interpreter.EvalObserver. CEL calls it after each step with the step's result
// value. It panics with an interpreter.EvalCancelledError if the cost exceeds the limit.
func (m *meter) observe(stepID int64, step any, value ref.Val) {
	if stepID < 0 || stepID >= int64(len(m.values)) {
		m.addStepCost(stepCostOf(step), value)
		return
	}
	// Use the first entry if it is unused or belongs to this step, otherwise the second one.
	cached := &m.stepCosts[stepID][0]
	if cached.step != nil && cached.step != step {
		cached = &m.stepCosts[stepID][1]
	}
	if cached.step != step {
		*cached = stepCostOf(step)
	}
	m.values[stepID] = value
	if len(m.weighedCalls) > 0 {
		if w, ok := m.weighedCalls[stepID]; ok {
			m.chargeArguments(w)
		}
	}
	m.addStepCost(*cached, value)
}

func (m *meter) addStepCost(cost stepCost, value ref.Val) {
	m.cost += cost.fixed
	if cost.call != nil {
		m.addCallCost(cost.call, value)
		if cost.call.isAddition {
			m.chargeConcatenation(cost.call, value)
		}
		if list, ok := value.(traits.Lister); ok && cost.call.isFindAll {
			text, pattern := m.valueOf(cost.call.args[0]), m.valueOf(cost.call.args[1])
			m.chargeWeight(sizeOf(list) * findSteps(textLen(text), sizeOfPattern(pattern)) / stepsPerWeight)
		}
	}
	if m.cost > m.threshold {
		m.handleExceededThreshold()
	}
}

// handleExceededThreshold cancels the evaluation if it exceeds its own limit. Otherwise costSum is
// exceeded, which it reports, and the evaluation continues up to its own limit.
func (m *meter) handleExceededThreshold() {
	if m.cost <= m.limit {
		m.threshold = m.limit
		m.costSum.reportExceeded()
		return
	}
	panic(interpreter.EvalCancelledError{
		Cause:   interpreter.CostLimitExceeded,
		Message: "operation cancelled: actual cost limit exceeded",
	})
}

// stepCostOf returns the cost of a step, according to its type.
func stepCostOf(step any) stepCost {
	c := stepCost{step: step}
	switch s := step.(type) {
	case interpreter.ConstantQualifier:
		c.fixed = 1
	case interpreter.InterpretableConst:
	case interpreter.InterpretableAttribute:
		// As in Kubernetes, a test for presence costs nothing.
		if reflect.TypeOf(s.Attr()).String() != conditionalType && reflect.TypeOf(step).String() != presenceTestType {
			c.fixed = common.SelectAndIdentCost
		}
	case interpreter.Qualifier:
		c.fixed = 1
	case interpreter.InterpretableCall:
		c.call = &callStep{
			function:        s.Function(),
			overload:        s.OverloadID(),
			dependsOnValues: dependsOnValues(s.Function(), s.OverloadID()),
			isAddition:      s.Function() == operators.Add,
			isFindAll:       s.Function() == "findAll",
		}
		for _, a := range s.Args() {
			c.call.args = append(c.call.args, a.ID())
		}
	case interpreter.InterpretableConstructor:
		switch s.Type() {
		case types.ListType:
			c.fixed = common.ListCreateBaseCost
		case types.MapType:
			c.fixed = common.MapCreateBaseCost
		default:
			c.fixed = common.StructCreateBaseCost
		}
	}
	return c
}

// reset prepares the meter for the next evaluation of the same program.
func (m *meter) reset() {
	clear(m.values)
	clear(m.args)
	m.cost = 0
	m.freeWeightUsed = 0
	m.threshold = m.limit
	m.costSum = nil
}

// addCallCost adds the cost of a call. A call with an argument that was not evaluated costs nothing.
func (m *meter) addCallCost(call *callStep, result ref.Val) {
	m.args = m.args[:0]
	for _, id := range call.args {
		if id < 0 || id >= int64(len(m.values)) || m.values[id] == nil {
			return
		}
		if call.dependsOnValues {
			m.args = append(m.args, m.values[id])
		}
	}
	if !call.dependsOnValues {
		m.cost++
		return
	}
	if !m.standardCosts {
		if cost, ok := callCost(call.function, call.overload, m.args, result); ok {
			m.cost += cost
			return
		}
	}
	m.cost += standardCost(call.overload, m.args)
}

// standardCost returns the cost of a function of CEL itself, as in cel-go's interpreter.CostTracker.
func standardCost(overload string, args []ref.Val) uint64 {
	size := func(i int) uint64 { return sizeOfContent(args[i]) }
	switch overload {
	case overloads.StartsWithString, overloads.EndsWithString, overloads.StringToBytes, overloads.BytesToString,
		overloads.ExtQuoteString, overloads.ExtFormatString:
		return scaleUp(size(0), common.StringTraversalCostFactor)
	case overloads.InList:
		return size(1)
	case overloads.LessString, overloads.GreaterString, overloads.LessEqualsString, overloads.GreaterEqualsString,
		overloads.LessBytes, overloads.GreaterBytes, overloads.LessEqualsBytes, overloads.GreaterEqualsBytes,
		overloads.Equals, overloads.NotEquals:
		return scaleUp(min(size(0), size(1)), common.StringTraversalCostFactor)
	case overloads.AddString, overloads.AddBytes:
		return scaleUp(size(0)+size(1), common.StringTraversalCostFactor)
	case overloads.MatchesString:
		return scaleUp(1+size(0), common.StringTraversalCostFactor) * scaleUp(size(1), common.RegexStringLengthCostFactor)
	case overloads.ContainsString:
		return scaleUp(size(0), common.StringTraversalCostFactor) * scaleUp(size(1), common.StringTraversalCostFactor)
	}
	return 1
}

// standardDependsOnValues reports whether standardCost reads the arguments. It must list the same
// overloads as standardCost.
func standardDependsOnValues(overload string) bool {
	switch overload {
	case overloads.StartsWithString, overloads.EndsWithString, overloads.StringToBytes, overloads.BytesToString,
		overloads.ExtQuoteString, overloads.ExtFormatString, overloads.InList,
		overloads.LessString, overloads.GreaterString, overloads.LessEqualsString, overloads.GreaterEqualsString,
		overloads.LessBytes, overloads.GreaterBytes, overloads.LessEqualsBytes, overloads.GreaterEqualsBytes,
		overloads.Equals, overloads.NotEquals, overloads.AddString, overloads.AddBytes, overloads.MatchesString,
		overloads.ContainsString:
		return true
	}
	return false
}

// sizeOfContent returns sizeOf of a value, or of the value in an optional.
func sizeOfContent(v ref.Val) uint64 {
	if o, ok := v.(*types.Optional); ok && o.HasValue() {
		return sizeOfContent(o.GetValue())
	}
	return sizeOf(v)
}

// A regular expression takes time in proportion to the text times the instructions of the pattern,
// and cannot be interrupted. Nested repetitions such as (x{100}){10} have far more instructions
// than bytes. Parsing takes milliseconds for a few bytes of some patterns. CEL counts only the bytes.
// The meter therefore charges for parsing, compiling and matching before the call.
const (
	// stepsPerWeight is how many steps of regexcost add 1 to the weight.
	stepsPerWeight = 16
	// parsesPerCall is how many times a call may parse a pattern: for each of its charges, and to
	// compile it.
	parsesPerCall = 4
	// maxKeptPattern is the maximum number of instructions of a constant pattern that a plan keeps
	// compiled. A longer one is compiled for each call, so that a plan has a bounded size.
	maxKeptPattern = 4096
	// maxSteps is more steps than any evaluation can pay for.
	maxSteps = maxWeight * stepsPerWeight
)

// constantPatterns compiles constant patterns of up to maxKeptPattern instructions once for each
// plan, unless they are expensive to parse.
func constantPatterns() *interpreter.RegexOptimization {
	standard := interpreter.MatchesRegexOptimization
	return &interpreter.RegexOptimization{
		Function:   standard.Function,
		RegexIndex: standard.RegexIndex,
		Factory: func(call interpreter.InterpretableCall, pattern string) (interpreter.InterpretableCall, error) {
			if regexcost.ParseSteps(pattern) > regexcost.Cheap || patternSize(pattern) > maxKeptPattern {
				return call, nil
			}
			return standard.Factory(call, pattern)
		},
	}
}

// patternMatch describes a call that matches a text, its first argument, against a pattern, its
// second one.
type patternMatch struct {
	text, pattern int64 // step ids
	// size is the number of instructions of a constant pattern. It is 0 if the pattern is known
	// only when the call is evaluated, or is expensive to parse.
	size uint64
	// compiles reports whether each call compiles the pattern.
	compiles bool
	// planSteps is the number of steps in which a plan compiles a pattern that it keeps.
	planSteps uint64
}

// newPatternMatch returns the patternMatch of a call, or nil if the function matches no pattern.
func newPatternMatch(call interpreter.InterpretableCall) *patternMatch {
	args := call.Args()
	if !matchesPattern(call.Function()) || len(args) < 2 {
		return nil
	}
	m := &patternMatch{text: args[0].ID(), pattern: args[1].ID(), compiles: true}
	constant, ok := args[1].(interpreter.InterpretableConst)
	if !ok {
		return m
	}
	pattern, ok := constant.Value().(types.String)
	parsing := regexcost.ParseSteps(string(pattern))
	if !ok || parsing > regexcost.Cheap {
		return m
	}
	m.size = patternSize(string(pattern))
	m.compiles = call.Function() != "matches" || m.size > maxKeptPattern
	m.planSteps = parsesPerCall*parsing + m.size*regexcost.StepsPerCompiled
	return m
}

// matchesPattern reports whether a function matches a text against a regular expression.
func matchesPattern(function string) bool {
	return function == "matches" || function == "find" || function == "findAll"
}

// chargePattern charges a match. Both arguments must be evaluated. If the evaluation cannot pay for
// parsing the pattern, it charges only that: the evaluation ends before the call.
func (m *meter) chargePattern(match *patternMatch) {
	var compilation uint64 // in steps
	size := match.size
	if match.compiles {
		pattern, ok := m.valueOf(match.pattern).(types.String)
		if !ok {
			return // the call fails
		}
		m.chargeWeight(parsesPerCall * regexcost.ParseSteps(string(pattern)) / stepsPerWeight)
		if m.cost > m.limit {
			return
		}
		if size == 0 {
			size = patternSize(string(pattern))
		}
		compilation = size * regexcost.StepsPerCompiled
	}
	m.chargeWeight((compilation + size*uint64(textLen(m.valueOf(match.text))+1)) / stepsPerWeight)
}

// findSteps returns the maximum number of steps for one match of findAll. The search for each match
// may read the rest of the text, as x.*y|x does.
func findSteps(text int, patternSize uint64) uint64 { return uint64(text+1) * max(patternSize, 1) }

// sizeOfPattern is patternSize of a value. A value that is no string has no instructions.
func sizeOfPattern(v ref.Val) uint64 {
	pattern, ok := v.(types.String)
	if !ok {
		return 0
	}
	return patternSize(string(pattern))
}

// patternSize returns the approximate number of instructions of a pattern, at most maxSteps.
func patternSize(pattern string) uint64 { return min(regexcost.Instructions(pattern), maxSteps) }

// patternValidator rejects invalid constant patterns of the function matches. Like CEL's own
// validator it checks the first argument, but it does not compile the pattern. It accepts patterns
// that are expensive to parse. If one is invalid, its evaluation fails.
type patternValidator struct{}

// Name implements cel.ASTValidator.
func (patternValidator) Name() string { return "binnacle.validate.patterns" }

// Validate implements cel.ASTValidator.
func (patternValidator) Validate(_ *cel.Env, _ cel.ValidatorConfig, a *ast.AST, issues *cel.Issues) {
	for _, call := range ast.MatchDescendants(ast.NavigateAST(a), ast.FunctionMatcher(overloads.Matches)) {
		args := call.AsCall().Args()
		if len(args) == 0 || args[0].Kind() != ast.LiteralKind {
			continue
		}
		pattern, ok := args[0].AsLiteral().(types.String)
		if !ok {
			continue
		}
		if regexcost.ParseSteps(string(pattern)) > regexcost.Cheap {
			continue
		}
		if _, err := syntax.Parse(string(pattern), syntax.Perl); err != nil {
			issues.ReportErrorAtID(args[0].ID(), "invalid %s argument", overloads.Matches)
		}
	}
}
