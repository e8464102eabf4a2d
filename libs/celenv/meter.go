package celenv

import (
	"reflect"

	"github.com/google/cel-go/common"
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
	cost   uint64
	limit  uint64
	values []ref.Val // by id
}

// The steps that CEL does not export, by their types.
const (
	conditionalType  = "*interpreter.conditionalAttribute"
	presenceTestType = "*interpreter.evalTestOnly"
)

// observe implements interpreter.EvalObserver.
func (m *meter) observe(id int64, step any, v ref.Val) {
	switch s := step.(type) {
	case interpreter.ConstantQualifier:
		m.cost++
	case interpreter.InterpretableConst:
	case interpreter.InterpretableAttribute:
		// A test for presence costs nothing, in Kubernetes.
		if reflect.TypeOf(s.Attr()).String() != conditionalType && reflect.TypeOf(step).String() != presenceTestType {
			m.cost += common.SelectAndIdentCost
		}
	case interpreter.Qualifier:
		m.cost++
	case interpreter.InterpretableCall:
		m.call(s, v)
	case interpreter.InterpretableConstructor:
		switch s.Type() {
		case types.ListType:
			m.cost += common.ListCreateBaseCost
		case types.MapType:
			m.cost += common.MapCreateBaseCost
		default:
			m.cost += common.StructCreateBaseCost
		}
	}
	if id >= 0 && id < int64(len(m.values)) {
		m.values[id] = v
	}
	if m.cost > m.limit {
		panic(interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded, Message: "operation cancelled: actual cost limit exceeded"})
	}
}

func (m *meter) reset() {
	clear(m.values)
	m.cost = 0
}

// call adds the cost of a call whose arguments are known.
func (m *meter) call(c interpreter.InterpretableCall, result ref.Val) {
	var few [4]ref.Val
	args := few[:0]
	for _, a := range c.Args() {
		id := a.ID()
		if id < 0 || id >= int64(len(m.values)) || m.values[id] == nil {
			return
		}
		args = append(args, m.values[id])
	}
	if cost := (Costs{}).CallCost(c.Function(), c.OverloadID(), args, result); cost != nil {
		m.cost += *cost
		return
	}
	m.cost += standardCost(c.OverloadID(), args)
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

// sizeWithin is sizeOf, and of what is in an optional value.
func sizeWithin(v ref.Val) uint64 {
	if o, ok := v.(*types.Optional); ok && o.HasValue() {
		return sizeWithin(o.GetValue())
	}
	return sizeOf(v)
}
