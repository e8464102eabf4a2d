package celenv

import (
	"fmt"
	"net/url"
	"reflect"
	"regexp"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
)

// library is a list of functions and types.
type library func() []cel.EnvOption

// CompileOptions implements cel.Library.
func (l library) CompileOptions() []cel.EnvOption { return l() }

// ProgramOptions implements cel.Library.
func (library) ProgramOptions() []cel.ProgramOption { return nil }

// unary binds a function of one value.
func unary[T ref.Val](operation func(T) ref.Val) cel.OverloadOpt {
	return cel.UnaryBinding(func(v ref.Val) ref.Val {
		x, ok := v.(T)
		if !ok {
			return types.MaybeNoSuchOverloadErr(v)
		}
		return operation(x)
	})
}

// regexLibrary provides find and regexFindAll.
func regexLibrary() []cel.EnvOption {
	list := cel.ListType(cel.StringType)
	return []cel.EnvOption{
		cel.Function("find", cel.MemberOverload("string_find_string", []*cel.Type{cel.StringType, cel.StringType}, cel.StringType,
			cel.BinaryBinding(regexFind))),
		cel.Function("findAll",
			cel.MemberOverload("string_find_all_string", []*cel.Type{cel.StringType, cel.StringType}, list,
				cel.BinaryBinding(func(text, pattern ref.Val) ref.Val { return regexFindAll(text, pattern, types.Int(-1)) })),
			cel.MemberOverload("string_find_all_string_int", []*cel.Type{cel.StringType, cel.StringType, cel.IntType}, list,
				cel.FunctionBinding(func(args ...ref.Val) ref.Val { return regexFindAll(args[0], args[1], args[2]) }))),
	}
}

// regexFind implements string.find.
func regexFind(text, pattern ref.Val) ref.Val {
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

// regexFindAll implements string.regexFindAll.
func regexFindAll(text, pattern, limit ref.Val) ref.Val {
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
	// The meter charges the matches after the call, so the call stops at the number of matches that
	// an evaluation can pay for.
	affordable := int(maxSteps / findSteps(len(s), sizeOfPattern(pattern)))
	wanted := int(n)
	if wanted < 0 || wanted > affordable {
		wanted = affordable + 1
	}
	found := re.FindAllString(string(s), wanted)
	if len(found) > affordable {
		return types.NewErr("operation cancelled: actual cost limit exceeded")
	}
	return types.NewStringList(types.DefaultTypeAdapter, found)
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

// listLibrary provides isSorted, min, max, sum, listIndexOf and lastIndexOf.
func listLibrary() []cel.EnvOption {
	element := cel.TypeParamType("T")
	list := cel.ListType(element)
	var sorted, smallest, largest, sums []cel.FunctionOpt
	for _, t := range []*cel.Type{cel.IntType, cel.UintType, cel.DoubleType, cel.BoolType, cel.StringType,
		cel.BytesType, cel.DurationType, cel.TimestampType} {
		args := []*cel.Type{cel.ListType(t)}
		prefix := "list_" + t.TypeName()
		sorted = append(sorted, cel.MemberOverload(prefix+"_is_sorted_bool", args, cel.BoolType, cel.UnaryBinding(isSorted)))
		smallest = append(smallest,
			cel.MemberOverload(prefix+"_min", args, t,
				cel.UnaryBinding(func(v ref.Val) ref.Val { return firstExtremum(v, types.IntNegOne, "min") })))
		largest = append(largest,
			cel.MemberOverload(prefix+"_max", args, t,
				cel.UnaryBinding(func(v ref.Val) ref.Val { return firstExtremum(v, types.IntOne, "max") })))
	}
	for t, zero := range map[*cel.Type]ref.Val{
		cel.IntType:      types.IntZero,
		cel.UintType:     types.Uint(0),
		cel.DoubleType:   types.Double(0),
		cel.DurationType: types.Duration{},
	} {
		sums = append(sums, cel.MemberOverload("list_"+t.TypeName()+"_sum", []*cel.Type{cel.ListType(t)}, t,
			cel.UnaryBinding(func(v ref.Val) ref.Val { return sumList(v, zero) })))
	}
	return []cel.EnvOption{
		cel.Function("isSorted", sorted...),
		cel.Function("min", smallest...),
		cel.Function("max", largest...),
		cel.Function("sum", sums...),
		cel.Function("indexOf", cel.MemberOverload("list_a_index_of_int", []*cel.Type{list, element}, cel.IntType,
			cel.BinaryBinding(func(l, v ref.Val) ref.Val { return listIndexOf(l, v, false) }))),
		cel.Function("lastIndexOf", cel.MemberOverload("list_a_last_index_of_int", []*cel.Type{list, element}, cel.IntType,
			cel.BinaryBinding(func(l, v ref.Val) ref.Val { return listIndexOf(l, v, true) }))),
	}
}

// isSorted implements list.isSorted.
func isSorted(value ref.Val) ref.Val {
	iterable, ok := value.(traits.Iterable)
	if !ok {
		return types.MaybeNoSuchOverloadErr(value)
	}
	var before traits.Comparer
	for it := iterable.Iterator(); it.HasNext() == types.True; {
		next, ok := it.Next().(traits.Comparer)
		if !ok {
			return types.MaybeNoSuchOverloadErr(value)
		}
		if before != nil && before.Compare(next.(ref.Val)) == types.IntOne {
			return types.False
		}
		before = next
	}
	return types.True
}

// firstExtremum returns the first of the largest elements of a list, or of the smallest, depending
// on direction.
func firstExtremum(value ref.Val, direction types.Int, name string) ref.Val {
	iterable, ok := value.(traits.Iterable)
	if !ok {
		return types.MaybeNoSuchOverloadErr(value)
	}
	var best ref.Val
	for it := iterable.Iterator(); it.HasNext() == types.True; {
		next := it.Next()
		c, ok := next.(traits.Comparer)
		if !ok {
			return types.MaybeNoSuchOverloadErr(value)
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

// sumList implements list.sum. zero is the sum of an empty list.
func sumList(value, zero ref.Val) ref.Val {
	iterable, ok := value.(traits.Iterable)
	if !ok {
		return types.MaybeNoSuchOverloadErr(value)
	}
	var total ref.Val
	for it := iterable.Iterator(); it.HasNext() == types.True; {
		next := it.Next()
		if total == nil {
			total = next
			continue
		}
		a, ok := total.(traits.Adder)
		if !ok {
			return types.MaybeNoSuchOverloadErr(value)
		}
		total = a.Add(next)
		if types.IsUnknownOrError(total) {
			return total
		}
	}
	if total == nil {
		return zero
	}
	return total
}

// listIndexOf implements list.listIndexOf, and list.lastIndexOf if last is set.
func listIndexOf(list, desired ref.Val, last bool) ref.Val {
	lister, ok := list.(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(list)
	}
	found := types.IntNegOne
	i := types.IntZero
	for it := lister.Iterator(); it.HasNext() == types.True; i++ {
		if it.Next().Equal(desired) != types.True {
			continue
		}
		if !last {
			return i
		}
		found = i
	}
	return found
}

var formatType = cel.ObjectType("kubernetes.NamedFormat")

// format is a CEL value of the type NamedFormat.
type format struct {
	opaque
	name string
	// patternLength is the length of the format's regular expression. The cost depends on it.
	patternLength int
	check         func(string) []string
}

// ConvertToType implements ref.Val.
func (f *format) ConvertToType(to ref.Type) ref.Val { return f.convert(f, to) }

// Value implements ref.Val.
func (f *format) Value() any { return f }

// Equal implements ref.Val.
func (f *format) Equal(other ref.Val) ref.Val {
	o, ok := other.(*format)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	return types.Bool(f.name == o.name)
}

// Lengths of regular expressions, as in Kubernetes.
const (
	labelPatternLen     = 30
	valuePatternLen     = 40
	subdomainPatternLen = 60
	// uriPatternLen and bytePatternLen are the lengths of regular expressions that are not used.
	uriPatternLen  = 1103
	bytePatternLen = 84
)

// formats returns the named formats.
func formats() map[string]*format {
	nameCheck := func(check func(string, bool) []string, prefix bool) func(string) []string {
		return func(s string) []string { return check(s, prefix) }
	}
	strfmtCheck := func(name, problem string) func(string) []string {
		return func(s string) []string {
			if !strfmt.Default.Validates(name, s) {
				return []string{problem}
			}
			return nil
		}
	}
	list := map[string]*format{
		"dns1123Label":           {patternLength: labelPatternLen, check: nameCheck(apivalidation.NameIsDNSLabel, false)},
		"dns1123LabelPrefix":     {patternLength: labelPatternLen, check: nameCheck(apivalidation.NameIsDNSLabel, true)},
		"dns1123Subdomain":       {patternLength: subdomainPatternLen, check: nameCheck(apivalidation.NameIsDNSSubdomain, false)},
		"dns1123SubdomainPrefix": {patternLength: subdomainPatternLen, check: nameCheck(apivalidation.NameIsDNSSubdomain, true)},
		"dns1035Label":           {patternLength: labelPatternLen, check: nameCheck(apivalidation.NameIsDNS1035Label, false)},
		"dns1035LabelPrefix":     {patternLength: labelPatternLen, check: nameCheck(apivalidation.NameIsDNS1035Label, true)},
		"qualifiedName":          {patternLength: subdomainPatternLen, check: validation.IsQualifiedName},
		"labelValue":             {patternLength: valuePatternLen, check: validation.IsValidLabelValue},
		"uri":                    {patternLength: uriPatternLen, check: checkURI},
		"uuid": {
			patternLength: len(strfmt.UUIDPattern),
			check:         strfmtCheck("uuid", "does not match the UUID format"),
		},
		"byte":     {patternLength: bytePatternLen, check: strfmtCheck("byte", "invalid base64")},
		"date":     {patternLength: len(strfmt.DateTimePattern), check: strfmtCheck("date", "invalid date")},
		"datetime": {patternLength: len(strfmt.DateTimePattern), check: strfmtCheck("datetime", "invalid datetime")},
	}
	for name, f := range list {
		f.name = name
		f.kind = formatType
	}
	return list
}

func checkURI(s string) []string {
	if _, err := url.ParseRequestURI(s); err != nil {
		return []string{err.Error()}
	}
	return nil
}

// formatLibrary provides format.named, a function for each format, and validate.
func formatLibrary() []cel.EnvOption {
	all := formats()
	options := []cel.EnvOption{
		cel.Function("format.named", cel.Overload("format-named", []*cel.Type{cel.StringType}, cel.OptionalType(formatType),
			unary(func(name types.String) ref.Val {
				if f, ok := all[string(name)]; ok {
					return types.OptionalOf(f)
				}
				return types.OptionalNone
			}))),
		cel.Function("validate", cel.MemberOverload("format-validate", []*cel.Type{formatType, cel.StringType},
			cel.OptionalType(cel.ListType(cel.StringType)), cel.BinaryBinding(validateFormat))),
	}
	for name, f := range all {
		options = append(options, cel.Function("format."+name, cel.Overload("format."+name, nil, formatType,
			cel.FunctionBinding(func(...ref.Val) ref.Val { return f }))))
	}
	return options
}

// validateFormat implements format.validate.
func validateFormat(v, text ref.Val) ref.Val {
	f, ok := v.(*format)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	s, ok := text.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(text)
	}
	problems := f.check(string(s))
	if len(problems) == 0 {
		return types.OptionalNone
	}
	return types.OptionalOf(types.NewStringList(types.DefaultTypeAdapter, problems))
}

// opaque is the common part of the values of this package. They have one type and convert at most
// to text.
type opaque struct {
	kind *types.Type
	text func() string // nil if the value has no text
}

// ConvertToNative implements ref.Val.
func (o opaque) ConvertToNative(expected reflect.Type) (any, error) {
	if o.text != nil && expected.Kind() == reflect.String {
		return o.text(), nil
	}
	return nil, fmt.Errorf("type conversion error from '%s' to '%v'", o.kind, expected)
}

// Type implements ref.Val.
func (o opaque) Type() ref.Type { return o.kind }

// convert implements ConvertToType for the value self.
func (o opaque) convert(self ref.Val, to ref.Type) ref.Val {
	switch to.TypeName() {
	case o.kind.TypeName():
		return self
	case types.TypeType.TypeName():
		return o.kind
	case types.StringType.TypeName():
		if o.text != nil {
			return types.String(o.text())
		}
	}
	return types.NewErr("type conversion error from '%s' to '%s'", o.kind, to)
}
