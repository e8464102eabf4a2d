package celenv

import (
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

// What an expression made of parts that it shares can be much larger than what it cost:
// [x, x], of that twice, and so on. Functions that look at all of such a value, or write
// it out, would take a time or a memory without end. So the values that they are given
// are weighed before, and a weight beyond what objects mostly have costs something, other
// than in Kubernetes.
const (
	// freeWeight is what an evaluation may look at without paying.
	freeWeight = 20_000
	// weightPerCost is the weight that costs 1 beyond that.
	weightPerCost = 4
	// smallWeight is that of what may be looked at as often as one likes.
	smallWeight = 64
	// textPerWeight is how many bytes of text weigh as much as a value.
	textPerWeight = 32
	// madePerWeight is the same for text that a call makes: it occupies memory.
	madePerWeight = 2
	// smallText is the number of bytes of a sum of texts without a type that costs no more
	// than any other call.
	smallText = 4096
	// maxElements of a list that is added to another.
	maxElements = PerCallLimit
)

// maxWeight can be paid by nobody.
const maxWeight = freeWeight + weightPerCost*PerCallLimit + 1

// weighty are the functions that look at all of their arguments.
func weighty(function string) bool {
	switch function {
	case operators.Equals, operators.NotEquals, operators.In, operators.OldIn, "format", "join", "replace":
		return true
	}
	switch function {
	case "sets.contains", "sets.equivalent", "sets.intersects":
		return true
	}
	return classes[function] == walks
}

// weighed are the arguments of a call that are known when the last of them is.
type weighed struct {
	args []int64 // ids
	// in tells of a look into a list, whose length is paid already.
	in bool
	// texts tells that the last text is written as often as the first has characters, or as
	// the first list has elements.
	texts bool
}

// weigh has the arguments of calls weighed: it is told of each step when it is planned.
func (m *meter) weigh(i interpreter.Interpretable) (interpreter.Interpretable, error) {
	c, ok := i.(interpreter.InterpretableCall)
	if !ok || !weighty(c.Function()) || len(c.Args()) == 0 {
		return i, nil
	}
	w := weighed{in: c.Function() == operators.In, texts: c.Function() == "replace" || c.Function() == "join"}
	args := c.Args()
	for _, a := range args {
		if _, ok := a.(interpreter.InterpretableConst); !ok || w.texts {
			w.args = append(w.args, a.ID())
		}
	}
	if last := args[len(args)-1].ID(); len(w.args) > 0 && last >= 0 && last < int64(len(m.values)) {
		if m.before == nil {
			m.before = map[int64]weighed{}
		}
		m.before[last] = w
	}
	return i, nil
}

// arrived adds what the arguments of a call weigh whose last one is there.
func (m *meter) arrived(w weighed) {
	var sum uint64
	for _, id := range w.args {
		sum += weightOf(m.value(id), maxWeight-min(sum, maxWeight))
	}
	if l, ok := m.value(w.args[len(w.args)-1]).(traits.Lister); ok && w.in {
		sum -= min(sum, sizeOf(l))
	}
	switch {
	case w.texts && len(w.args) >= 3:
		// At most: each character, and the place before it, is replaced.
		sum += (sizeOf(m.value(w.args[0])) + 1) * uint64(textLen(m.value(w.args[2]))) / madePerWeight
	case w.texts && len(w.args) == 2:
		sum += sizeOf(m.value(w.args[0])) * uint64(textLen(m.value(w.args[1]))) / madePerWeight
	}
	m.charge(sum)
}

func (m *meter) value(id int64) ref.Val {
	if id < 0 || id >= int64(len(m.values)) {
		return nil
	}
	return m.values[id]
}

// textSize returns the bytes of a text or of bytes; 0 of other values.
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

// weightOf a value, which is counted up to a limit.
func weightOf(v ref.Val, limit uint64) uint64 {
	switch v := v.(type) {
	case types.String:
		return 1 + uint64(len(v))/textPerWeight
	case types.Bytes:
		return 1 + uint64(len(v))/textPerWeight
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

// concatType is CEL's own list of two lists: a tree of all that were added, in which
// everything is looked for from its root.
const concatType = "*types.concatList"

// flatly has lists added into one that is as quick as any other.
func flatly(add functions.BinaryOp) functions.BinaryOp {
	return func(a, b ref.Val) ref.Val {
		sum := add(a, b)
		both, ok := sum.(traits.Lister)
		if !ok || reflect.TypeOf(sum).String() != concatType {
			return sum
		}
		n := sizeOf(both)
		if n > maxElements {
			return types.NewErr("operation cancelled: actual cost limit exceeded")
		}
		all := make([]ref.Val, 0, n)
		for _, l := range []ref.Val{a, b} {
			for it := l.(traits.Lister).Iterator(); it.HasNext() == types.True; {
				all = append(all, it.Next())
			}
		}
		return types.NewRefValList(types.DefaultTypeAdapter, all)
	}
}

// added adds what it took to make a list, or a text whose type is not known, of two. Text of
// a known type has a cost already.
func (m *meter) added(c *call, v ref.Val) {
	switch n := textSize(v); {
	case n > smallText && c.overload != overloads.AddString && c.overload != overloads.AddBytes:
		m.cost += share(uint64(n), common.StringTraversalCostFactor)
		return
	case n > 0:
		return
	}
	if _, builds := v.(traits.MutableLister); builds {
		return
	}
	if l, ok := v.(traits.Lister); ok {
		m.charge(sizeOf(l))
	}
}

// charge adds a weight.
func (m *meter) charge(weight uint64) {
	if weight <= smallWeight {
		return
	}
	m.work += weight
	if m.work > freeWeight {
		m.cost += (m.work - freeWeight) / weightPerCost
		m.work = freeWeight
	}
}
