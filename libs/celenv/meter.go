package celenv

import (
	"reflect"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// meter counts the cost of an evaluation, as cel-go's interpreter.CostTracker does. That tracker
// keeps values on a stack, which grows with each iteration of a loop and is then searched, so a loop
// takes quadratic time. The meter keeps only the last value of each step, by the step's id.
//
// A meter serves one evaluation at a time, and is reset between them.
type meter struct {
	cost      uint64
	limit     uint64    // the cost at which the evaluation is cancelled
	threshold uint64    // limit, or the lower cost at which costSum is exceeded
	costSum   *CostSum  // the sum over several evaluations; nil if there is none
	values    []ref.Val // the last value of each step, by step id
	// stepCosts holds the cost of each step, by id. A name and its last qualifier share an id, so
	// each id has two entries.
	stepCosts [][2]stepCost
	args      []ref.Val // arguments of the current call
	// weighedCalls holds the calls whose arguments are weighed, by the id of the last argument.
	weighedCalls map[int64]weighedCall
	// standardCosts selects the costs of CEL itself: calls cost standardCost, and callCost, which
	// has the costs of Kubernetes' functions, is not used.
	standardCosts bool
	// freeWeightUsed is how much weight was read at no cost, at most freeWeight.
	freeWeightUsed uint64
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
}

// Names of step types that CEL does not export.
const (
	conditionalType  = "*interpreter.conditionalAttribute"
	presenceTestType = "*interpreter.evalTestOnly"
)

// observe implements interpreter.EvalObserver. CEL calls it after each step with the step's result
// v. It panics with an interpreter.EvalCancelledError if the cost exceeds the limit.
func (m *meter) observe(id int64, step any, v ref.Val) {
	if id < 0 || id >= int64(len(m.values)) {
		m.addStepCost(stepCostOf(step), v)
		return
	}
	cached := &m.stepCosts[id][0]
	if cached.step != nil && cached.step != step {
		cached = &m.stepCosts[id][1]
	}
	if cached.step != step {
		*cached = stepCostOf(step)
	}
	m.values[id] = v
	if len(m.weighedCalls) > 0 {
		if w, ok := m.weighedCalls[id]; ok {
			m.chargeArguments(w)
		}
	}
	m.addStepCost(*cached, v)
}

func (m *meter) addStepCost(c stepCost, v ref.Val) {
	m.cost += c.fixed
	if c.call != nil {
		m.addCallCost(c.call, v)
		if c.call.isAddition {
			m.chargeConcatenation(c.call, v)
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
func (m *meter) addCallCost(c *callStep, result ref.Val) {
	m.args = m.args[:0]
	for _, id := range c.args {
		if id < 0 || id >= int64(len(m.values)) || m.values[id] == nil {
			return
		}
		if c.dependsOnValues {
			m.args = append(m.args, m.values[id])
		}
	}
	if !c.dependsOnValues {
		m.cost++
		return
	}
	if !m.standardCosts {
		if cost, ok := callCost(c.function, c.overload, m.args, result); ok {
			m.cost += cost
			return
		}
	}
	m.cost += standardCost(c.overload, m.args)
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

// standardDependsOnValues reports whether standardCost reads the arguments.
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
