package celenv

import (
	"fmt"
	"regexp"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// regexLibrary provides find and findAll.
type regexLibrary struct{}

// CompileOptions implements cel.Library.
func (regexLibrary) CompileOptions() []cel.EnvOption {
	list := cel.ListType(cel.StringType)
	return []cel.EnvOption{
		cel.Function("find", cel.MemberOverload("string_find_string", []*cel.Type{cel.StringType, cel.StringType}, cel.StringType,
			cel.BinaryBinding(find))),
		cel.Function("findAll",
			cel.MemberOverload("string_find_all_string", []*cel.Type{cel.StringType, cel.StringType}, list,
				cel.BinaryBinding(func(text, pattern ref.Val) ref.Val { return findAll(text, pattern, types.Int(-1)) })),
			cel.MemberOverload("string_find_all_string_int", []*cel.Type{cel.StringType, cel.StringType, cel.IntType}, list,
				cel.FunctionBinding(func(args ...ref.Val) ref.Val { return findAll(args[0], args[1], args[2]) }))),
	}
}

// ProgramOptions implements cel.Library.
func (regexLibrary) ProgramOptions() []cel.ProgramOption { return nil }

func find(text, pattern ref.Val) ref.Val {
	re, err := compilePattern(pattern)
	if err != nil {
		return types.WrapErr(err)
	}
	s, ok := text.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(text)
	}
	return types.String(re.FindString(string(s)))
}

func findAll(text, pattern, limit ref.Val) ref.Val {
	re, err := compilePattern(pattern)
	if err != nil {
		return types.WrapErr(err)
	}
	s, ok := text.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(text)
	}
	n, ok := limit.(types.Int)
	if !ok {
		return types.MaybeNoSuchOverloadErr(limit)
	}
	return types.NewStringList(types.DefaultTypeAdapter, re.FindAllString(string(s), int(n)))
}

func compilePattern(pattern ref.Val) (*regexp.Regexp, error) {
	p, ok := pattern.(types.String)
	if !ok {
		return nil, fmt.Errorf("a regular expression is a string, not %s", pattern.Type().TypeName())
	}
	re, err := regexp.Compile(string(p))
	if err != nil {
		return nil, fmt.Errorf("illegal regular expression: %w", err)
	}
	return re, nil
}

// listLibrary provides isSorted, min, max, sum, indexOf and lastIndexOf.
type listLibrary struct{}

// CompileOptions implements cel.Library.
func (listLibrary) CompileOptions() []cel.EnvOption {
	element := cel.TypeParamType("T")
	list := cel.ListType(element)
	var sorted, smallest, largest, sums []cel.FunctionOpt
	for _, t := range []*cel.Type{cel.IntType, cel.UintType, cel.DoubleType, cel.BoolType, cel.StringType, cel.BytesType, cel.DurationType, cel.TimestampType} {
		of := []*cel.Type{cel.ListType(t)}
		prefix := "list_" + t.TypeName()
		sorted = append(sorted, cel.MemberOverload(prefix+"_is_sorted_bool", of, cel.BoolType, cel.UnaryBinding(isSorted)))
		smallest = append(smallest, cel.MemberOverload(prefix+"_min", of, t, cel.UnaryBinding(func(v ref.Val) ref.Val { return extreme(v, types.IntNegOne, "min") })))
		largest = append(largest, cel.MemberOverload(prefix+"_max", of, t, cel.UnaryBinding(func(v ref.Val) ref.Val { return extreme(v, types.IntOne, "max") })))
	}
	for t, zero := range map[*cel.Type]ref.Val{
		cel.IntType: types.IntZero, cel.UintType: types.Uint(0), cel.DoubleType: types.Double(0), cel.DurationType: types.Duration{},
	} {
		sums = append(sums, cel.MemberOverload("list_"+t.TypeName()+"_sum", []*cel.Type{cel.ListType(t)}, t,
			cel.UnaryBinding(func(v ref.Val) ref.Val { return sum(v, zero) })))
	}
	return []cel.EnvOption{
		cel.Function("isSorted", sorted...),
		cel.Function("min", smallest...),
		cel.Function("max", largest...),
		cel.Function("sum", sums...),
		cel.Function("indexOf", cel.MemberOverload("list_a_index_of_int", []*cel.Type{list, element}, cel.IntType,
			cel.BinaryBinding(func(l, v ref.Val) ref.Val { return indexOf(l, v, false) }))),
		cel.Function("lastIndexOf", cel.MemberOverload("list_a_last_index_of_int", []*cel.Type{list, element}, cel.IntType,
			cel.BinaryBinding(func(l, v ref.Val) ref.Val { return indexOf(l, v, true) }))),
	}
}

// ProgramOptions implements cel.Library.
func (listLibrary) ProgramOptions() []cel.ProgramOption { return nil }

func isSorted(v ref.Val) ref.Val {
	l, ok := v.(traits.Iterable)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	var before traits.Comparer
	for it := l.Iterator(); it.HasNext() == types.True; {
		next, ok := it.Next().(traits.Comparer)
		if !ok {
			return types.MaybeNoSuchOverloadErr(v)
		}
		if before != nil && before.Compare(next.(ref.Val)) == types.IntOne {
			return types.False
		}
		before = next
	}
	return types.True
}

// extreme returns the first of the largest elements of a list, or of the smallest, depending on
// direction.
func extreme(v ref.Val, direction types.Int, name string) ref.Val {
	l, ok := v.(traits.Iterable)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	var best ref.Val
	for it := l.Iterator(); it.HasNext() == types.True; {
		next := it.Next()
		c, ok := next.(traits.Comparer)
		if !ok {
			return types.MaybeNoSuchOverloadErr(v)
		}
		if best == nil || c.Compare(best) == direction {
			best = next
		}
	}
	if best == nil {
		return types.NewErr("%s called on empty list", name)
	}
	return best
}

func sum(v, zero ref.Val) ref.Val {
	l, ok := v.(traits.Iterable)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	var total ref.Val
	for it := l.Iterator(); it.HasNext() == types.True; {
		next := it.Next()
		if total == nil {
			total = next
			continue
		}
		a, ok := total.(traits.Adder)
		if !ok {
			return types.MaybeNoSuchOverloadErr(v)
		}
		if total = a.Add(next); types.IsUnknownOrError(total) {
			return total
		}
	}
	if total == nil {
		return zero
	}
	return total
}

func indexOf(v, wanted ref.Val, last bool) ref.Val {
	l, ok := v.(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	found := types.IntNegOne
	i := types.IntZero
	for it := l.Iterator(); it.HasNext() == types.True; i++ {
		if it.Next().Equal(wanted) != types.True {
			continue
		}
		if !last {
			return i
		}
		found = i
	}
	return found
}
