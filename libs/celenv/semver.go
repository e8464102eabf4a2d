package celenv

import (
	"fmt"

	"github.com/blang/semver/v4"
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
)

var versionType = cel.ObjectType("kubernetes.Semver")

// QuantityType is the type of quantities, for variables and fields.
var QuantityType = quantityType

// Devices returns a Base with semantic versions and cel.bind, for expressions that select devices.
func (b *Base) Devices() (*Base, error) {
	env, err := b.env.Extend(cel.Lib(versionLibrary{}), ext.Bindings(ext.BindingsVersion(0)))
	if err != nil {
		return nil, fmt.Errorf("CEL environment: %w", err)
	}
	functions, err := dispatcherOf(env)
	return &Base{env: env, functions: functions}, err
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
type versionLibrary struct{}

// CompileOptions implements cel.Library.
func (versionLibrary) CompileOptions() []cel.EnvOption {
	text, one, two := []*cel.Type{cel.StringType}, []*cel.Type{versionType}, []*cel.Type{versionType, versionType}
	part := func(name string, of func(*semver.Version) uint64) cel.EnvOption {
		return cel.Function(name, cel.MemberOverload("semver_"+name, one, cel.IntType, cel.UnaryBinding(func(v ref.Val) ref.Val {
			s, ok := v.(*semanticVersion)
			if !ok {
				return types.MaybeNoSuchOverloadErr(v)
			}
			return types.Int(int64(of(&s.version)))
		})))
	}
	compare := func(name, overload string, out *cel.Type, of func(int) ref.Val) cel.EnvOption {
		return cel.Function(name, cel.MemberOverload(overload, two, out, cel.BinaryBinding(func(x, y ref.Val) ref.Val {
			a, ok := x.(*semanticVersion)
			b, also := y.(*semanticVersion)
			if !ok || !also {
				return types.MaybeNoSuchOverloadErr(y)
			}
			return of(a.version.Compare(b.version))
		})))
	}
	return []cel.EnvOption{
		cel.Function("semver", cel.Overload("string_to_semver", text, versionType, cel.UnaryBinding(func(v ref.Val) ref.Val {
			s, ok := v.(types.String)
			if !ok {
				return types.MaybeNoSuchOverloadErr(v)
			}
			parsed, err := semver.Parse(string(s))
			if err != nil {
				return types.WrapErr(err)
			}
			return newVersion(parsed)
		}))),
		cel.Function("isSemver", cel.Overload("is_semver_string", text, cel.BoolType, cel.UnaryBinding(func(v ref.Val) ref.Val {
			s, ok := v.(types.String)
			if !ok {
				return types.MaybeNoSuchOverloadErr(v)
			}
			_, err := semver.Parse(string(s))
			return types.Bool(err == nil)
		}))),
		compare("isGreaterThan", "semver_is_greater_than", cel.BoolType, func(c int) ref.Val { return types.Bool(c > 0) }),
		compare("isLessThan", "semver_is_less_than", cel.BoolType, func(c int) ref.Val { return types.Bool(c < 0) }),
		compare("compareTo", "semver_compare_to", cel.IntType, func(c int) ref.Val { return types.Int(c) }),
		part("major", func(v *semver.Version) uint64 { return v.Major }),
		part("minor", func(v *semver.Version) uint64 { return v.Minor }),
		part("patch", func(v *semver.Version) uint64 { return v.Patch }),
	}
}

// ProgramOptions implements cel.Library.
func (versionLibrary) ProgramOptions() []cel.ProgramOption { return nil }
