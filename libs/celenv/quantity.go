package celenv

import (
	"errors"
	"fmt"

	"github.com/blang/semver/v4"
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	"k8s.io/apimachinery/pkg/api/resource"

	bounded "binnacle/libs/quantity"
)

// QuantityType is the type of quantities, for variables and fields.
var QuantityType = cel.ObjectType("kubernetes.Quantity")

// quantity is an amount with its unit.
type quantity struct {
	opaque
	amount resource.Quantity
}

func newQuantity(q resource.Quantity) *quantity {
	return &quantity{opaque: opaque{kind: QuantityType, text: q.String}, amount: q}
}

// ConvertToType implements ref.Val.
func (q *quantity) ConvertToType(to ref.Type) ref.Val { return q.convert(q, to) }

// Value implements ref.Val.
func (q *quantity) Value() any { return &q.amount }

// Equal implements ref.Val.
func (q *quantity) Equal(value ref.Val) ref.Val {
	o, ok := value.(*quantity)
	if !ok {
		return types.MaybeNoSuchOverloadErr(value)
	}
	return types.Bool(q.amount.Cmp(o.amount) == 0)
}

// quantityLibrary provides quantity, isQuantity and the functions of quantities.
func quantityLibrary() []cel.EnvOption {
	q := []*cel.Type{QuantityType}
	self := []*cel.Type{QuantityType, QuantityType}
	withInt := []*cel.Type{QuantityType, cel.IntType}
	return []cel.EnvOption{
		cel.Function("quantity", cel.Overload("string_to_quantity", []*cel.Type{cel.StringType}, QuantityType, unary(toQuantity))),
		cel.Function("isQuantity", cel.Overload("is_quantity_string", []*cel.Type{cel.StringType}, cel.BoolType, unary(isQuantity))),
		cel.Function("sign", cel.Overload("quantity_sign", q, cel.IntType,
			unary(func(q *quantity) ref.Val { return types.Int(q.amount.Sign()) }))),
		cel.Function("asApproximateFloat", cel.MemberOverload("quantity_get_float", q, cel.DoubleType,
			unary(func(q *quantity) ref.Val { return types.Double(q.amount.AsApproximateFloat64()) }))),
		cel.Function("asInteger", cel.MemberOverload("quantity_get_int", q, cel.IntType, unary(asInteger))),
		cel.Function("isInteger", cel.MemberOverload("quantity_is_integer", q, cel.BoolType,
			unary(func(q *quantity) ref.Val { _, ok := q.amount.AsInt64(); return types.Bool(ok) }))),
		cel.Function("isGreaterThan", cel.MemberOverload("quantity_is_greater_than", self, cel.BoolType,
			onQuantities(func(a, b *resource.Quantity) ref.Val { return types.Bool(a.Cmp(*b) > 0) }))),
		cel.Function("isLessThan", cel.MemberOverload("quantity_is_less_than", self, cel.BoolType,
			onQuantities(func(a, b *resource.Quantity) ref.Val { return types.Bool(a.Cmp(*b) < 0) }))),
		cel.Function("compareTo", cel.MemberOverload("quantity_compare_to", self, cel.IntType,
			onQuantities(func(a, b *resource.Quantity) ref.Val { return types.Int(a.Cmp(*b)) }))),
		cel.Function("add", cel.MemberOverload("quantity_add", self, QuantityType, onQuantities(addQuantities)),
			cel.MemberOverload("quantity_add_int", withInt, QuantityType, onQuantities(addQuantities))),
		cel.Function("sub", cel.MemberOverload("quantity_sub", self, QuantityType, onQuantities(subtractQuantities)),
			cel.MemberOverload("quantity_sub_int", withInt, QuantityType, onQuantities(subtractQuantities))),
	}
}

// onQuantities binds a function of two quantities. The second argument may be an int.
func onQuantities(operation func(a, b *resource.Quantity) ref.Val) cel.OverloadOpt {
	return cel.BinaryBinding(func(x, value ref.Val) ref.Val {
		a, ok := x.(*quantity)
		if !ok {
			return types.MaybeNoSuchOverloadErr(x)
		}
		switch b := value.(type) {
		case *quantity:
			return operation(&a.amount, &b.amount)
		case types.Int:
			return operation(&a.amount, resource.NewQuantity(int64(b), resource.DecimalExponent))
		}
		return types.MaybeNoSuchOverloadErr(value)
	})
}

// toQuantity implements quantity.
func toQuantity(s types.String) ref.Val {
	q, err := bounded.Parse(string(s))
	if err != nil {
		return types.WrapErr(err)
	}
	return newQuantity(q)
}

func isQuantity(s types.String) ref.Val {
	_, err := bounded.Parse(string(s))
	return types.Bool(err == nil)
}

func asInteger(q *quantity) ref.Val {
	n, ok := q.amount.AsInt64()
	if !ok {
		return types.WrapErr(errors.New("cannot convert value to integer"))
	}
	return types.Int(n)
}

func addQuantities(a, b *resource.Quantity) ref.Val {
	sum := a.DeepCopy()
	sum.Add(*b)
	return newQuantity(sum)
}

func subtractQuantities(a, b *resource.Quantity) ref.Val {
	difference := a.DeepCopy()
	difference.Sub(*b)
	return newQuantity(difference)
}

var versionType = cel.ObjectType("kubernetes.Semver")

// Devices returns a BaseEnv with semantic versions and cel.bind, for expressions that select
// devices.
func (b *BaseEnv) Devices() (*BaseEnv, error) {
	env, err := b.env.Extend(cel.Lib(library(versionLibrary)), ext.Bindings(ext.BindingsVersion(0)))
	if err != nil {
		return nil, fmt.Errorf("CEL environment: %w", err)
	}
	functions, err := dispatcherOf(env)
	return &BaseEnv{env: env, functions: functions}, err
}

// semanticVersion is a version as defined by semver.org.
type semanticVersion struct {
	opaque
	version semver.Version
}

func newVersion(v semver.Version) *semanticVersion {
	return &semanticVersion{opaque: opaque{kind: versionType, text: v.String}, version: v}
}

// ConvertToType implements ref.Val.
func (v *semanticVersion) ConvertToType(to ref.Type) ref.Val { return v.convert(v, to) }

// Value implements ref.Val.
func (v *semanticVersion) Value() any { return v.version }

// Equal implements ref.Val.
func (v *semanticVersion) Equal(other ref.Val) ref.Val {
	o, ok := other.(*semanticVersion)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	return types.Bool(v.version.EQ(o.version))
}

// versionLibrary provides semver, isSemver and the functions of versions.
func versionLibrary() []cel.EnvOption {
	text := []*cel.Type{cel.StringType}
	oneVersion := []*cel.Type{versionType}
	twoVersions := []*cel.Type{versionType, versionType}
	partOf := func(name string, get func(*semver.Version) uint64) cel.EnvOption {
		return cel.Function(name, cel.MemberOverload("semver_"+name, oneVersion, cel.IntType, unary(func(v *semanticVersion) ref.Val {
			return types.Int(int64(get(&v.version)))
		})))
	}
	compare := func(name, overload string, out *cel.Type, get func(int) ref.Val) cel.EnvOption {
		return cel.Function(name, cel.MemberOverload(overload, twoVersions, out, cel.BinaryBinding(func(x, y ref.Val) ref.Val {
			a, ok := x.(*semanticVersion)
			b, also := y.(*semanticVersion)
			if !ok || !also {
				return types.MaybeNoSuchOverloadErr(y)
			}
			return get(a.version.Compare(b.version))
		})))
	}
	return []cel.EnvOption{
		cel.Function("semver", cel.Overload("string_to_semver", text, versionType, unary(func(s types.String) ref.Val {
			parsed, err := semver.Parse(string(s))
			if err != nil {
				return types.WrapErr(err)
			}
			return newVersion(parsed)
		}))),
		cel.Function("isSemver", cel.Overload("is_semver_string", text, cel.BoolType, unary(func(s types.String) ref.Val {
			_, err := semver.Parse(string(s))
			return types.Bool(err == nil)
		}))),
		compare("isGreaterThan", "semver_is_greater_than", cel.BoolType, func(c int) ref.Val { return types.Bool(c > 0) }),
		compare("isLessThan", "semver_is_less_than", cel.BoolType, func(c int) ref.Val { return types.Bool(c < 0) }),
		compare("compareTo", "semver_compare_to", cel.IntType, func(c int) ref.Val { return types.Int(c) }),
		partOf("major", func(v *semver.Version) uint64 { return v.Major }),
		partOf("minor", func(v *semver.Version) uint64 { return v.Minor }),
		partOf("patch", func(v *semver.Version) uint64 { return v.Patch }),
	}
}
