package celenv

import (
	"math"
	"reflect"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// The weight of a value is the number of scalars, lists and maps in it. A long text weighs more, in
// proportion to its length.
//
// An expression can build a value that is much larger than its cost: x = [a, a], y = [x, x],
// z = [y, y] and so on double the size with each step. A function that reads all of z would take
// unbounded time. The meter therefore weighs the arguments of such functions before the call.
// Weight beyond freeWeight adds to the cost. Kubernetes has no such charge.
const (
	// freeWeight is the total weight that an evaluation may read at no cost.
	freeWeight = 20_000
	// weightPerCost is how much weight beyond freeWeight costs 1.
	weightPerCost = 4
	// smallWeight is the weight up to which the arguments of a call do not count at all.
	smallWeight = 64
	// bytesPerWeight is the number of bytes of text that weigh as much as one value.
	bytesPerWeight = 32
	// createdBytesPerWeight is the number of bytes of text created by a call that weigh as much as
	// one value. It is lower than bytesPerWeight, because created text occupies memory.
	createdBytesPerWeight = 2
	// smallText is the size in bytes up to which the concatenation of two texts whose type is not
	// known before the evaluation (dyn) costs no more than any other call.
	smallText = 4096
	// maxElements is the maximum number of elements of a concatenation of lists.
	maxElements = PerCallLimit
)

// maxWeight is more weight than any evaluation can pay for.
const maxWeight = freeWeight + weightPerCost*PerCallLimit + 1

func readsArguments(function string) bool {
	switch function {
	case operators.Equals, operators.NotEquals, operators.In, operators.OldIn,
		"format", "join", "replace",
		"sets.contains", "sets.equivalent", "sets.intersects":
		return true
	}
	return costClasses[function] == costTraverse
}

// readsText reports whether a function reads the whole text of its arguments, but costs the same for
// any text. Conversions and comparisons have a cost only if the type of the arguments is known
// before the evaluation.
func readsText(function string) bool {
	switch function {
	case overloads.Size, "charAt", "isURL", "getHostname", "getPort", "getEscapedPath", "getQuery",
		// Each of these accepts the name of a time zone.
		overloads.TimeGetFullYear, overloads.TimeGetMonth, overloads.TimeGetDayOfYear, overloads.TimeGetDate,
		overloads.TimeGetDayOfMonth, overloads.TimeGetDayOfWeek, overloads.TimeGetHours, overloads.TimeGetMinutes,
		overloads.TimeGetSeconds, overloads.TimeGetMilliseconds,
		overloads.TypeConvertBytes, overloads.TypeConvertString, overloads.TypeConvertInt, overloads.TypeConvertUint,
		overloads.TypeConvertDouble, overloads.TypeConvertDuration, overloads.TypeConvertTimestamp,
		operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		return true
	}
	return false
}

// weighedCall describes a call whose arguments are weighed once the last of them is evaluated.
type weighedCall struct {
	args []int64 // step ids of the arguments to weigh
	// isSearch marks the operator in for lists. The length of its list is part of its standard cost.
	isSearch bool
	// textOnly excludes values other than texts from the weight.
	textOnly bool
	// parsesQuery marks a call that creates a map from the query of a URL.
	parsesQuery bool
	// repeatsText marks a call that writes the last string once for each character of the first
	// one, or for each element of the first list.
	repeatsText bool
	// allArgs holds the step ids of all arguments, including constants. It is set for the function
	// format and for comparisons of sets.
	allArgs []int64
	// comparisons is how many times a comparison of sets compares each pair of elements, at most.
	comparisons uint64
	match       *patternMatch // set if the call matches a pattern; nothing else is weighed then
}

// registerWeighedCall adds a step to weighedCalls if it is a call whose arguments are weighed. It is
// an interpreter.InterpretableDecorator: the planner calls it for each step, and it returns the step
// unchanged.
func (m *meter) registerWeighedCall(i interpreter.Interpretable) (interpreter.Interpretable, error) {
	call, ok := i.(interpreter.InterpretableCall)
	if !ok || len(call.Args()) == 0 {
		return i, nil
	}
	match := newPatternMatch(call)
	if match != nil && !match.compiles {
		m.planCost += match.planSteps / (stepsPerWeight * weightPerCost)
	}
	textOnly := readsText(call.Function())
	if match == nil && !textOnly && !readsArguments(call.Function()) {
		return i, nil
	}
	weighed := weighedCall{
		isSearch:    call.OverloadID() == overloads.InList,
		textOnly:    textOnly,
		parsesQuery: call.Function() == "getQuery",
		repeatsText: call.Function() == "replace" || call.Function() == "join",
		match:       match,
	}
	switch call.Function() {
	case "sets.contains", "sets.intersects":
		weighed.comparisons = 1
	case "sets.equivalent":
		weighed.comparisons = 2
	}
	args := call.Args()
	for _, a := range args {
		if weighed.comparisons > 0 || call.Function() == "format" {
			weighed.allArgs = append(weighed.allArgs, a.ID())
		}
		// A constant is no larger than its text in the expression, so it is not weighed. But
		// chargeArguments needs all arguments of a call that repeats text.
		if _, isConst := a.(interpreter.InterpretableConst); !isConst || weighed.repeatsText {
			weighed.args = append(weighed.args, a.ID())
		}
	}
	lastArgument := args[len(args)-1].ID()
	isObserved := lastArgument >= 0 && lastArgument < int64(len(m.values))
	if (len(weighed.args) > 0 || len(weighed.allArgs) > 0 || match != nil) && isObserved {
		if m.weighedCalls == nil {
			m.weighedCalls = map[int64]weighedCall{}
		}
		m.weighedCalls[lastArgument] = weighed
	}
	return i, nil
}

// chargeArguments charges the weight of a call's arguments and of the text that the call creates.
// All arguments must be evaluated.
func (m *meter) chargeArguments(call weighedCall) {
	if call.match != nil {
		m.chargePattern(call.match)
		return
	}
	var sum uint64
	for _, id := range call.args {
		value := m.valueOf(id)
		if call.textOnly {
			sum += uint64(textSize(value)) / bytesPerWeight
			continue
		}
		sum += weightOf(value, maxWeight-min(sum, maxWeight))
	}
	if call.isSearch {
		if list, ok := m.valueOf(call.args[len(call.args)-1]).(traits.Lister); ok {
			sum -= min(sum, sizeOf(list))
		}
	}
	switch {
	case call.comparisons > 0:
		sum += m.weightOfComparisons(call)
	case len(call.allArgs) == 2: // text.format(list)
		sum += weightOfFormat(m.valueOf(call.allArgs[0]), m.valueOf(call.allArgs[1]))
	case call.parsesQuery:
		sum += uint64(textSize(m.valueOf(call.args[0]))) / createdBytesPerWeight
	case call.repeatsText && len(call.args) >= 3: // text.replace(old, new)
		// With an empty old, new is inserted before each character and at the end.
		repetitions := sizeOf(m.valueOf(call.args[0])) + 1
		sum += repetitions * uint64(textLen(m.valueOf(call.args[2]))) / createdBytesPerWeight
	case call.repeatsText && len(call.args) == 2: // list.join(separator)
		repetitions := sizeOf(m.valueOf(call.args[0]))
		sum += repetitions * uint64(textLen(m.valueOf(call.args[1]))) / createdBytesPerWeight
	}
	m.chargeWeight(sum)
}

// weightOfComparisons returns the weight of the pairs of elements that a comparison of sets reads,
// beyond the weight that its standard cost pays for. The standard cost is the number of pairs. It is
// charged after the call, so weightOfComparisons adds it if it exceeds the limit.
func (m *meter) weightOfComparisons(call weighedCall) uint64 {
	if len(call.allArgs) != 2 {
		return 0
	}
	a, isList := m.valueOf(call.allArgs[0]).(traits.Lister)
	b, areLists := m.valueOf(call.allArgs[1]).(traits.Lister)
	if !isList || !areLists {
		return 0
	}
	pairs := sizeOf(a) * sizeOf(b) * call.comparisons
	// A comparison of two elements ends with the smaller one.
	weight := min(weightOf(a, maxWeight)*sizeOf(b), weightOf(b, maxWeight)*sizeOf(a)) * call.comparisons
	if m.standardCosts {
		return weight
	}
	if pairs > m.limit {
		m.cost += pairs
	}
	return weight - min(weight, pairs*weightPerCost)
}

// floatClauseSize is the size of created text that weighs as much as formatting a
// number with a fraction. Such a clause takes long because it looks up the language.
const floatClauseSize = 256

// maxPrecision is the largest precision that is formatted.
const maxPrecision = 1_000_000

// weightOfFormat returns the weight of the text that text.format(list) creates, or 0 if it is small.
func weightOfFormat(text, list ref.Val) uint64 {
	const limit = maxWeight * createdBytesPerWeight
	format, _ := text.(types.String)
	size := formatSize(string(format)) + formattedSize(list, limit)
	if size <= smallText {
		return 0
	}
	return size / createdBytesPerWeight
}

// formatSize returns the size of the text that the clauses of a format create regardless of their
// values. A clause is a percent sign, optionally a point and a precision, and a letter.
func formatSize(format string) uint64 {
	size := uint64(0)
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			continue
		}
		i++
		if i < len(format) && format[i] == '.' {
			precision := uint64(0)
			for i++; i < len(format) && format[i] >= '0' && format[i] <= '9'; i++ {
				precision = min(10*precision+uint64(format[i]-'0'), maxPrecision)
			}
			size += precision
		}
		if i < len(format) && (format[i] == 'f' || format[i] == 'e') {
			size += floatClauseSize
		}
	}
	return size
}

// formattedSize returns the approximate size of a value in a formatted text. It stops counting at
// limit.
func formattedSize(v ref.Val, limit uint64) uint64 {
	const (
		scalarSize     = 16
		largestNumber  = 316 // digits of the largest number with 6 decimals
		usualMagnitude = 1e9
	)
	switch v := v.(type) {
	case types.String:
		return 2 + uint64(len(v))
	case types.Bytes:
		return 3 + uint64(len(v))
	case types.Double:
		if math.Abs(float64(v)) > usualMagnitude {
			return largestNumber
		}
	case traits.Lister:
		sum := uint64(2)
		for it := v.Iterator(); sum < limit && it.HasNext() == types.True; {
			sum += formattedSize(it.Next(), limit-sum)
		}
		return sum
	case traits.Mapper:
		sum := uint64(2)
		for it := v.Iterator(); sum < limit && it.HasNext() == types.True; {
			key := it.Next()
			sum += formattedSize(key, limit-sum)
			if value, ok := v.Find(key); ok && sum < limit {
				sum += formattedSize(value, limit-sum)
			}
		}
		return sum
	}
	return scalarSize
}

// valueOf returns the last value of a step, or nil if the step has none or is not observed.
func (m *meter) valueOf(id int64) ref.Val {
	if id < 0 || id >= int64(len(m.values)) {
		return nil
	}
	return m.values[id]
}

// textSize returns the length in bytes of a string, bytes or a URL, and 0 for other values.
func textSize(v ref.Val) int {
	switch v := v.(type) {
	case types.Bytes:
		return len(v)
	case *webAddress:
		return len(v.text)
	}
	return textLen(v)
}

// textLen returns the length in bytes of a string, and 0 for other values.
func textLen(v ref.Val) int {
	s, _ := v.(types.String)
	return len(s)
}

// weightOf returns the weight of a value. It stops counting at limit.
func weightOf(v ref.Val, limit uint64) uint64 {
	switch v := v.(type) {
	case types.String:
		return 1 + uint64(len(v))/bytesPerWeight
	case types.Bytes:
		return 1 + uint64(len(v))/bytesPerWeight
	case *webAddress:
		return 1 + uint64(len(v.text))/bytesPerWeight
	case *types.Optional:
		if v.HasValue() {
			return 1 + weightOf(v.GetValue(), limit)
		}
	case traits.Lister:
		sum := uint64(1)
		for it := v.Iterator(); sum < limit && it.HasNext() == types.True; {
			sum += weightOf(it.Next(), limit-sum)
		}
		return sum
	case traits.Mapper:
		sum := uint64(1)
		for it := v.Iterator(); sum < limit && it.HasNext() == types.True; {
			key := it.Next()
			sum += weightOf(key, limit-sum)
			if value, ok := v.Find(key); ok && sum < limit {
				sum += weightOf(value, limit-sum)
			}
		}
		return sum
	}
	return 1
}

// concatType is the name of cel-go's unexported type for a concatenation of lists. It is a tree of
// the operands, so a lookup takes time in proportion to the number of operands.
const concatType = "*types.concatList"

// flattenConcat wraps add so that a concatenation of lists is a flat list with fast lookups.
func flattenConcat(add functions.BinaryOp) functions.BinaryOp {
	return func(a, b ref.Val) ref.Val {
		result := add(a, b)
		concatenation, ok := result.(traits.Lister)
		if !ok || reflect.TypeOf(result).String() != concatType {
			return result
		}
		length := sizeOf(concatenation)
		if length > maxElements {
			return types.NewErr("operation cancelled: actual cost limit exceeded")
		}
		elements := make([]ref.Val, 0, length)
		for _, operand := range []ref.Val{a, b} {
			for it := operand.(traits.Lister).Iterator(); it.HasNext() == types.True; {
				elements = append(elements, it.Next())
			}
		}
		return types.NewRefValList(types.DefaultTypeAdapter, elements)
	}
}

// chargeConcatenation charges the result of an addition that is a list, or a text whose type was
// not known before the evaluation. Texts of a known type are charged by standardCost.
func (m *meter) chargeConcatenation(c *callStep, result ref.Val) {
	if size := textSize(result); size > 0 {
		isTyped := c.overload == overloads.AddString || c.overload == overloads.AddBytes
		if size > smallText && !isTyped {
			m.cost += scaleUp(uint64(size), common.StringTraversalCostFactor)
		}
		return
	}
	if _, ok := result.(traits.MutableLister); ok {
		return // a macro such as map appends to its own list, which copies nothing
	}
	if list, ok := result.(traits.Lister); ok {
		m.chargeWeight(sizeOf(list))
	}
}

// chargeWeight adds to the weight that the evaluation has read. Weight beyond freeWeight adds to
// the cost.
func (m *meter) chargeWeight(weight uint64) {
	if weight <= smallWeight {
		return
	}
	m.freeWeightUsed += weight
	if m.freeWeightUsed > freeWeight {
		m.cost += (m.freeWeightUsed - freeWeight) / weightPerCost
		m.freeWeightUsed = freeWeight
	}
}
