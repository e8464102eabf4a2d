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

// meter counts what an evaluation costs, as CEL's own tracker does. That one
// keeps values on a stack that grows with each turn of a loop and is searched
// in each turn, so that a loop takes the square of its length; the meter keeps
// the last value of each step by the step's id.
type meter struct {
	cost    uint64
	limit   uint64
	bound   uint64 // the limit, or what is costly before that
	expense *Expense
	values  []ref.Val // by id
	// charges are what steps cost, by id: of a name and its last qualifier, which have
	// one, both.
	charges [][2]charge
	args    []ref.Val // of the call that is looked at
	// before are the calls whose arguments are weighed, by the id of the last one; work
	// is what was weighed and is free yet.
	before map[int64]weighed
	// standardCosts leaves callCost out.
	standardCosts bool
	work          uint64
}

// charge is what a step costs.
type charge struct {
	step  any // nil of no step
	fixed uint64
	call  *call // of a step whose cost hangs on values
}

// call is a step that calls a function.
type call struct {
	function, overload string
	args               []int64 // ids
	byValues, adds     bool
}

// The steps that CEL does not export, by their types.
const (
	conditionalType  = "*interpreter.conditionalAttribute"
	presenceTestType = "*interpreter.evalTestOnly"
)

func newMeter(limit uint64, ids int64) meter {
	return meter{limit: limit, bound: limit, values: make([]ref.Val, ids), charges: make([][2]charge, ids)}
}

// observe implements interpreter.EvalObserver.
func (m *meter) observe(id int64, step any, v ref.Val) {
	if id < 0 || id >= int64(len(m.values)) {
		m.add(chargeOf(step), v)
		return
	}
	c := &m.charges[id][0]
	if c.step != nil && c.step != step {
		c = &m.charges[id][1]
	}
	if c.step != step {
		*c = chargeOf(step)
	}
	m.values[id] = v
	if len(m.before) > 0 {
		if w, ok := m.before[id]; ok {
			m.arrived(w)
		}
	}
	m.add(*c, v)
}

// add what a step costs whose result is v.
func (m *meter) add(c charge, v ref.Val) {
	m.cost += c.fixed
	if c.call != nil {
		m.called(c.call, v)
		if c.call.adds {
			m.added(c.call, v)
		}
	}
	if m.cost > m.bound {
		m.passed()
	}
}

// passed ends the evaluation at its limit, and tells before that it is costly.
func (m *meter) passed() {
	if m.cost <= m.limit {
		m.bound = m.limit
		m.expense.passed()
		return
	}
	panic(interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded, Message: "operation cancelled: actual cost limit exceeded"})
}

func chargeOf(step any) charge {
	c := charge{step: step}
	switch s := step.(type) {
	case interpreter.ConstantQualifier:
		c.fixed = 1
	case interpreter.InterpretableConst:
	case interpreter.InterpretableAttribute:
		// A test for presence costs nothing, in Kubernetes.
		if reflect.TypeOf(s.Attr()).String() != conditionalType && reflect.TypeOf(step).String() != presenceTestType {
			c.fixed = common.SelectAndIdentCost
		}
	case interpreter.Qualifier:
		c.fixed = 1
	case interpreter.InterpretableCall:
		c.call = &call{function: s.Function(), overload: s.OverloadID()}
		for _, a := range s.Args() {
			c.call.args = append(c.call.args, a.ID())
		}
		c.call.byValues, c.call.adds = byValues(c.call.function, c.call.overload), c.call.function == operators.Add
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

func (m *meter) reset() {
	clear(m.values)
	clear(m.args)
	m.cost, m.work, m.bound, m.expense = 0, 0, m.limit, nil
}

// called adds the cost of a call whose arguments are known.
func (m *meter) called(c *call, result ref.Val) {
	m.args = m.args[:0]
	for _, id := range c.args {
		if id < 0 || id >= int64(len(m.values)) || m.values[id] == nil {
			return
		}
		if c.byValues {
			m.args = append(m.args, m.values[id])
		}
	}
	if !c.byValues {
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

// standardCost is the cost of CEL's own functions.
func standardCost(overload string, args []ref.Val) uint64 {
	size := func(i int) uint64 { return sizeWithin(args[i]) }
	switch overload {
	case overloads.StartsWithString, overloads.EndsWithString, overloads.StringToBytes, overloads.BytesToString,
		overloads.ExtQuoteString, overloads.ExtFormatString:
		return share(size(0), common.StringTraversalCostFactor)
	case overloads.InList:
		return size(1)
	case overloads.LessString, overloads.GreaterString, overloads.LessEqualsString, overloads.GreaterEqualsString,
		overloads.LessBytes, overloads.GreaterBytes, overloads.LessEqualsBytes, overloads.GreaterEqualsBytes,
		overloads.Equals, overloads.NotEquals:
		return share(min(size(0), size(1)), common.StringTraversalCostFactor)
	case overloads.AddString, overloads.AddBytes:
		return share(size(0)+size(1), common.StringTraversalCostFactor)
	case overloads.MatchesString:
		return share(1+size(0), common.StringTraversalCostFactor) * share(size(1), common.RegexStringLengthCostFactor)
	case overloads.ContainsString:
		return share(size(0), common.StringTraversalCostFactor) * share(size(1), common.StringTraversalCostFactor)
	}
	return 1
}

// standardByValues tells whether standardCost looks at the arguments.
func standardByValues(overload string) bool {
	switch overload {
	case overloads.StartsWithString, overloads.EndsWithString, overloads.StringToBytes, overloads.BytesToString,
		overloads.ExtQuoteString, overloads.ExtFormatString, overloads.InList,
		overloads.LessString, overloads.GreaterString, overloads.LessEqualsString, overloads.GreaterEqualsString,
		overloads.LessBytes, overloads.GreaterBytes, overloads.LessEqualsBytes, overloads.GreaterEqualsBytes,
		overloads.Equals, overloads.NotEquals, overloads.AddString, overloads.AddBytes, overloads.MatchesString, overloads.ContainsString:
		return true
	}
	return false
}

// sizeWithin is sizeOf, and of what is in an optional value.
func sizeWithin(v ref.Val) uint64 {
	if o, ok := v.(*types.Optional); ok && o.HasValue() {
		return sizeWithin(o.GetValue())
	}
	return sizeOf(v)
}
