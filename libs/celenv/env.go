package celenv

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"
)

const (
	// PerCallLimit is the cost at which one evaluation is stopped.
	PerCallLimit = 1_000_000
	// interruptEvery is how many steps of a comprehension pass between two
	// looks at the context.
	interruptEvery = 100
	// stringsVersion and setsVersion are those of Kubernetes 1.33.
	stringsVersion = 2
)

// ErrType tells that an expression is of another type than wanted.
var ErrType = errors.New("wrong type")

// Struct is an object type with a fixed set of fields. At run time its values
// are map[string]any; a field that is not in the map is not set.
type Struct struct {
	Name   string
	Fields map[string]*cel.Type
}

// Type returns the type of the struct's values, for variables and fields.
func (s Struct) Type() *cel.Type { return cel.ObjectType(s.Name) }

// Env compiles expressions over some variables.
type Env struct{ env *cel.Env }

// New makes an environment. structs are all object types that the variables'
// types mention, directly or through fields.
func New(variables map[string]*cel.Type, structs ...Struct) (*Env, error) {
	base, err := cel.NewEnv(
		cel.HomogeneousAggregateLiterals(),
		cel.EagerlyValidateDeclarations(true),
		cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true),
		cel.OptionalTypes(),
		cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateRegexLiterals(), cel.ValidateHomogeneousAggregateLiterals()),
		ext.Strings(ext.StringsVersion(stringsVersion)),
		ext.Sets(),
		ext.TwoVarComprehensions(),
		cel.Lib(regexLibrary{}),
		cel.Lib(listLibrary{}),
	)
	if err != nil {
		return nil, fmt.Errorf("CEL environment: %w", err)
	}
	// The provider wraps that of the libraries, which register their types in
	// it, so it comes last.
	p := &provider{Provider: base.CELTypeProvider(), structs: make(map[string]Struct, len(structs))}
	for _, s := range structs {
		p.structs[s.Name] = s
	}
	options := []cel.EnvOption{cel.CustomTypeProvider(p)}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		options = append(options, cel.Variable(name, variables[name]))
	}
	env, err := base.Extend(options...)
	if err != nil {
		return nil, fmt.Errorf("CEL environment: %w", err)
	}
	return &Env{env: env}, nil
}

// Compile checks an expression and makes it ready to run. It must be of one of
// the wanted types, if any are given; cel.DynType stands for what is known at
// run time only.
func (e *Env) Compile(expression string, want ...*cel.Type) (*Program, error) {
	ast, issues := e.env.Compile(expression)
	if err := issues.Err(); err != nil {
		return nil, fmt.Errorf("compilation failed: %w", err)
	}
	out := ast.OutputType()
	if len(want) > 0 && !slices.ContainsFunc(want, out.IsExactType) {
		return nil, fmt.Errorf("%w: must evaluate to %s, not %s", ErrType, typeNames(want), out)
	}
	program, err := e.env.Program(ast,
		cel.EvalOptions(cel.OptOptimize, cel.OptTrackCost),
		cel.CostTracking(libraryCost{}),
		cel.CostLimit(PerCallLimit),
		cel.InterruptCheckFrequency(interruptEvery),
	)
	if err != nil {
		return nil, fmt.Errorf("program instantiation failed: %w", err)
	}
	return &Program{expression: expression, ast: ast, program: program}, nil
}

func typeNames(list []*cel.Type) string {
	names := make([]string, len(list))
	for i, t := range list {
		names[i] = t.String()
	}
	return strings.Join(names, " or ")
}

// provider adds struct types to those of the libraries.
type provider struct {
	types.Provider
	structs map[string]Struct
}

// FindStructType implements types.Provider.
func (p *provider) FindStructType(name string) (*types.Type, bool) {
	if s, ok := p.structs[name]; ok {
		return types.NewTypeTypeWithParam(s.Type()), true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldNames implements types.Provider.
func (p *provider) FindStructFieldNames(name string) ([]string, bool) {
	if s, ok := p.structs[name]; ok {
		return slices.Sorted(maps.Keys(s.Fields)), true
	}
	return p.Provider.FindStructFieldNames(name)
}

// FindStructFieldType implements types.Provider. The accessors stay empty: the
// values are maps, which CEL reads by itself.
func (p *provider) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	if s, ok := p.structs[name]; ok {
		t, ok := s.Fields[field]
		if !ok {
			return nil, false
		}
		return &types.FieldType{Type: t}, true
	}
	return p.Provider.FindStructFieldType(name, field)
}
