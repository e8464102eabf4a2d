package celenv

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// The weight of a value is the number of values in it, with long texts counted by their length. An
// expression can build a value that is much larger than its cost: the list [x, x], a list with that
// list twice, and so on. A function that reads or writes all of such a value would take unbounded
// time or memory. The meter therefore weighs the arguments of such functions before the call.
// Weight beyond freeWeight adds to the cost, unlike in Kubernetes.
const (
	// freeWeight is the weight that an evaluation may read at no cost.
	freeWeight = 20_000
	// weightPerCost is the weight beyond freeWeight that costs 1.
	weightPerCost = 4
	// smallWeight is the weight that may be read any number of times at no cost.
	smallWeight = 64
	// bytesPerWeight is the number of bytes of text that weigh as much as one value.
	bytesPerWeight = 32
	// createdBytesPerWeight is the number of bytes of text created by a call that weigh as much as
	// one value. It is lower than bytesPerWeight, because created text occupies memory.
	createdBytesPerWeight = 2
	// smallText is the size in bytes up to which a concatenation of dynamically typed texts costs
	// no more than any other call.
	smallText = 4096
	// maxElements is the maximum number of elements of a concatenation of lists.
	maxElements = PerCallLimit
)

// maxWeight is more weight than any evaluation can pay for.
const maxWeight = freeWeight + weightPerCost*PerCallLimit + 1

// readsArguments reports whether a function reads all of its arguments.
func readsArguments(function string) bool {
	switch function {
	case operators.Equals, operators.NotEquals, operators.In, operators.OldIn, "format", "join", "replace":
		return true
	}
	switch function {
	case "sets.contains", "sets.equivalent", "sets.intersects":
		return true
	}
	return costClasses[function] == costTraverse
}

// weighedCall describes the arguments of a call to weigh when the last of them is known.
type weighedCall struct {
	args []int64 // step ids
	// isSearch marks a search in a list, whose length is already charged.
	isSearch bool
	// repeatsText marks a call that writes the last string once for each character of the first
	// one, or for each element of the first list.
	repeatsText bool
}

// registerWeighedCall registers a call whose arguments are weighed. The planner calls it for each
// step.
func (m *meter) registerWeighedCall(i interpreter.Interpretable) (interpreter.Interpretable, error) {
	c, ok := i.(interpreter.InterpretableCall)
	if !ok || !readsArguments(c.Function()) || len(c.Args()) == 0 {
		return i, nil
	}
	w := weighedCall{isSearch: c.Function() == operators.In, repeatsText: c.Function() == "replace" || c.Function() == "join"}
	args := c.Args()
	for _, a := range args {
		if _, ok := a.(interpreter.InterpretableConst); !ok || w.repeatsText {
			w.args = append(w.args, a.ID())
		}
	}
	if last := args[len(args)-1].ID(); len(w.args) > 0 && last >= 0 && last < int64(len(m.values)) {
		if m.weighedCalls == nil {
			m.weighedCalls = map[int64]weighedCall{}
		}
		m.weighedCalls[last] = w
	}
	return i, nil
}

// chargeArguments charges the weight of a call's arguments when the last argument is known.
func (m *meter) chargeArguments(w weighedCall) {
	var sum uint64
	for _, id := range w.args {
		sum += weightOf(m.valueOf(id), maxWeight-min(sum, maxWeight))
	}
	if l, ok := m.valueOf(w.args[len(w.args)-1]).(traits.Lister); ok && w.isSearch {
		sum -= min(sum, sizeOf(l))
	}
	switch {
	case w.repeatsText && len(w.args) >= 3:
		// Upper bound: each character and the position before it is replaced.
		sum += (sizeOf(m.valueOf(w.args[0])) + 1) * uint64(textLen(m.valueOf(w.args[2]))) / createdBytesPerWeight
	case w.repeatsText && len(w.args) == 2:
		sum += sizeOf(m.valueOf(w.args[0])) * uint64(textLen(m.valueOf(w.args[1]))) / createdBytesPerWeight
	}
	m.chargeWeight(sum)
}

func (m *meter) valueOf(id int64) ref.Val {
	if id < 0 || id >= int64(len(m.values)) {
		return nil
	}
	return m.values[id]
}

// textSize returns the size in bytes of a string or of bytes, and 0 for other values.
func textSize(v ref.Val) int {
	if b, ok := v.(types.Bytes); ok {
		return len(b)
	}
	return textLen(v)
}

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

// concatType is CEL's type for a concatenation of lists. It is a tree of all operands, and each
// lookup starts at its root.
const concatType = "*types.concatList"

// flattenConcat wraps add so that a concatenation of lists is a flat list with fast lookups.
func flattenConcat(add functions.BinaryOp) functions.BinaryOp {
	return func(a, b ref.Val) ref.Val {
		result := add(a, b)
		concatenation, ok := result.(traits.Lister)
		if !ok || reflect.TypeOf(result).String() != concatType {
			return result
		}
		n := sizeOf(concatenation)
		if n > maxElements {
			return types.NewErr("operation cancelled: actual cost limit exceeded")
		}
		elements := make([]ref.Val, 0, n)
		for _, l := range []ref.Val{a, b} {
			for it := l.(traits.Lister).Iterator(); it.HasNext() == types.True; {
				elements = append(elements, it.Next())
			}
		}
		return types.NewRefValList(types.DefaultTypeAdapter, elements)
	}
}

// chargeConcatenation charges the concatenation of two lists, or of two texts of dynamic type.
// Texts of a known type already have a cost.
func (m *meter) chargeConcatenation(c *callStep, v ref.Val) {
	n := textSize(v)
	switch {
	case n > smallText && c.overload != overloads.AddString && c.overload != overloads.AddBytes:
		m.cost += scaleUp(uint64(n), common.StringTraversalCostFactor)
		return
	case n > 0:
		return
	}
	if _, builds := v.(traits.MutableLister); builds {
		return
	}
	if l, ok := v.(traits.Lister); ok {
		m.chargeWeight(sizeOf(l))
	}
}

// chargeWeight adds a weight. Weight beyond freeWeight adds to the cost.
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

// treeBuilder converts values to trees of maps, lists and scalars that share nothing with the
// values. An expression can share a part so often that the tree would be practically unlimited, so
// the size of the tree is bounded.
type treeBuilder struct {
	remaining int
	// typeErrors holds an error for each value whose type name does not match its path.
	typeErrors []error
}

// nodeSize is the approximate size of a value in bytes, without its text.
const nodeSize = 16

func (t *treeBuilder) spend(bytes int) error {
	t.remaining -= bytes
	if t.remaining < 0 {
		return fmt.Errorf("%w: the value is too large", ErrPatch)
	}
	return nil
}

// withTypeErrors returns err, or the typeErrors if err is nil.
func (t *treeBuilder) withTypeErrors(err error) error {
	if err != nil || len(t.typeErrors) == 0 {
		return err
	}
	return fmt.Errorf("%w: %w", ErrPatch, errors.Join(t.typeErrors...))
}

// buildFields converts the fields of an object at a path. Without a path, it does not check type
// names.
func (t *treeBuilder) buildFields(c *builtObject, path string) (map[string]any, error) {
	if name := c.kind.TypeName(); path != "" && name != path {
		t.typeErrors = append(t.typeErrors,
			fmt.Errorf("unexpected type name %q, expected %q, which matches field name path from root Object type", name, path))
	}
	out := make(map[string]any, len(c.fields))
	for _, name := range slices.Sorted(maps.Keys(c.fields)) {
		fieldPath := path
		if fieldPath != "" {
			fieldPath += "." + name
		}
		if err := t.spend(len(name)); err != nil {
			return nil, err
		}
		v, err := t.buildValue(c.fields[name], fieldPath)
		if err != nil {
			return nil, err
		}
		out[name] = v
	}
	return out, nil
}

// buildValue converts a CEL value to a JSON value.
func (t *treeBuilder) buildValue(v ref.Val, path string) (any, error) {
	if err := t.spend(nodeSize); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case *builtObject:
		return t.buildFields(v, path)
	case types.Null:
		return nil, nil
	case types.Bool:
		return bool(v), nil
	case types.Int:
		return int64(v), nil
	case types.Uint:
		if v > math.MaxInt64 {
			return float64(v), nil
		}
		return int64(v), nil
	case types.Double:
		if f := float64(v); !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f, nil
		}
	case types.String:
		return string(v), t.spend(len(v))
	case types.Bytes:
		return base64.StdEncoding.EncodeToString(v), t.spend(len(v))
	case types.Timestamp, types.Duration:
		if text, ok := v.ConvertToType(types.StringType).(types.String); ok {
			return string(text), nil
		}
	case traits.Mapper:
		out := map[string]any{}
		err := visitElements(v, func(key ref.Val) error {
			name, ok := key.(types.String)
			if !ok {
				return fmt.Errorf("map key %v is of type %s, not string", key.Value(), key.Type().TypeName())
			}
			err := t.spend(len(name))
			if err == nil {
				out[string(name)], err = t.buildValue(v.Get(key), path)
			}
			return err
		})
		return out, err
	case traits.Lister:
		out := []any{}
		err := visitElements(v, func(element ref.Val) error {
			x, err := t.buildValue(element, path)
			out = append(out, x)
			return err
		})
		return out, err
	case *types.Err:
		return nil, v
	}
	return nil, fmt.Errorf("a value of type %s is not part of an object", v.Type().TypeName())
}

// visitElements calls do for each element of a list or each key of a map.
func visitElements(v ref.Val, visit func(ref.Val) error) error {
	i, ok := v.(traits.Iterable)
	if !ok {
		return fmt.Errorf("%w: %s has no elements", ErrPatch, v.Type().TypeName())
	}
	for it := i.Iterator(); it.HasNext() == types.True; {
		if err := visit(it.Next()); err != nil {
			return err
		}
	}
	return nil
}
