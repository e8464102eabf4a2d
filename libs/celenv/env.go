// Package celenv builds environments for CEL expressions in configuration and definitions.
// Expressions see the claims and the user of a token, a request to authorize, or a custom resource.
// The caller names the variables and their types. The functions are those that such expressions
// have in Kubernetes 1.33: functions of strings, lists, sets, regular expressions, URLs,
// quantities, addresses and networks, named formats and optional values.
//
// A BaseEnv has the functions; an Env also has the variables. An Env, and the Programs and Runners
// that it creates, are immutable and safe for concurrent use.
//
// Three bounds limit an evaluation: PerCallLimit units of cost for each evaluation, a Budget that
// several evaluations share, and the end of the context. The actual cost of an evaluation (meter)
// and the estimated maximum cost of an expression (Costs) are those of Kubernetes, because they
// decide which rules a definition may have.
//
// The callers are package authnconfig, the match conditions of webhooks, the rules of custom
// resources and admission policies.
package celenv

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"
	"github.com/google/cel-go/interpreter"
)

const (
	// PerCallLimit is the cost at which an evaluation stops with an error.
	PerCallLimit = 1_000_000
	// interruptEvery is the number of steps of a comprehension between two checks of the context.
	interruptEvery = 100
	// stringsVersion is the version of the library that Kubernetes 1.33 uses.
	stringsVersion = 2
)

// ErrType says that an expression does not have the wanted type.
var ErrType = errors.New("wrong type")

// Struct is an object type with a fixed set of fields. At run time its values are map[string]any. A
// field that is missing from the map is not set.
type Struct struct {
	Name   string
	Fields map[string]*cel.Type
}

// Type returns the type of the struct's values, for variables and fields.
func (s Struct) Type() *cel.Type { return cel.ObjectType(s.Name) }

// Env compiles expressions over a set of variables.
type Env struct {
	env       *cel.Env
	functions interpreter.Dispatcher
	// standardCosts counts calls of the functions of this package as CEL counts unknown functions.
	standardCosts bool
	budget        *CheckBudget // may be nil
}

// BaseEnv has the functions and no variables. NewBaseEnv takes milliseconds; Extend takes much
// less.
type BaseEnv struct {
	env           *cel.Env
	functions     interpreter.Dispatcher
	standardCosts bool
}

// WithStandardCosts returns a base that counts 1 at run time for each call of a function of this
// package. Kubernetes counts this way without the gates StrictCostEnforcementForVAP and
// StrictCostEnforcementForWebhooks.
func (b *BaseEnv) WithStandardCosts() *BaseEnv {
	lenient := *b
	lenient.standardCosts = true
	return &lenient
}

// NewBaseEnv returns a BaseEnv with all functions.
func NewBaseEnv() (*BaseEnv, error) {
	env, err := cel.NewEnv(
		cel.HomogeneousAggregateLiterals(),
		cel.EagerlyValidateDeclarations(true),
		cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true),
		cel.OptionalTypes(),
		cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(),
			patternValidator{}, cel.ValidateHomogeneousAggregateLiterals()),
		ext.Strings(ext.StringsVersion(stringsVersion)),
		ext.Sets(),
		ext.TwoVarComprehensions(),
		cel.Lib(library(regexLibrary)),
		cel.Lib(library(listLibrary)),
		cel.Lib(library(urlLibrary)),
		cel.Lib(library(quantityLibrary)),
		cel.Lib(library(networkLibrary)),
		cel.Lib(library(formatLibrary)),
		cel.Lib(library(authzLibrary)),
		// As in Kubernetes, a test for presence costs nothing.
		cel.CostEstimatorOptions(checker.PresenceTestHasCost(false)),
	)
	if err != nil {
		return nil, fmt.Errorf("CEL environment: %w", err)
	}
	functions, err := dispatcherOf(env)
	return &BaseEnv{env: env, functions: functions}, err
}

// dispatcherOf returns the functions of an environment, for use by all Runners.
func dispatcherOf(env *cel.Env) (interpreter.Dispatcher, error) {
	functions := interpreter.NewDispatcher()
	for _, f := range env.Functions() {
		bindings, err := f.Bindings()
		for _, b := range bindings {
			switch name := f.Name(); name {
			case operators.Add:
				if b.Binary != nil {
					b.Binary = flattenConcat(b.Binary)
				}
			case "indexOf", "lastIndexOf":
				searchTexts(b, name == "lastIndexOf")
			}
		}
		if err == nil {
			err = functions.Add(bindings...)
		}
		if err != nil {
			return nil, fmt.Errorf("CEL environment: %w", err)
		}
	}
	return functions, nil
}

// TypeFinder finds object types by name.
type TypeFinder interface {
	// Fields returns the fields of a type, or false if there is no such type.
	Fields(name string) (map[string]*cel.Type, bool)
}

// Extend returns an Env with variables and with the object types that their types mention, directly
// or through fields. find may be nil.
func (b *BaseEnv) Extend(variables map[string]*cel.Type, find TypeFinder) (*Env, error) {
	var options []cel.EnvOption
	if find != nil {
		// The provider wraps that of the libraries, in which they register their types.
		options = append(options, cel.CustomTypeProvider(&structProvider{Provider: b.env.CELTypeProvider(), find: find}))
	}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		options = append(options, cel.Variable(name, variables[name]))
	}
	env, err := b.env.Extend(options...)
	if err != nil {
		return nil, fmt.Errorf("CEL environment: %w", err)
	}
	return &Env{env: env, functions: b.functions, standardCosts: b.standardCosts}, nil
}

// New returns an Env with all functions. structs lists all object types that the types of the
// variables mention, directly or through fields.
func New(variables map[string]*cel.Type, structs ...Struct) (*Env, error) {
	base, err := NewBaseEnv()
	if err != nil {
		return nil, err
	}
	structTypes := make(structsByName, len(structs))
	for _, s := range structs {
		structTypes[s.Name] = s.Fields
	}
	return base.Extend(variables, structTypes)
}

// structsByName maps the name of an object type to its fields.
type structsByName map[string]map[string]*cel.Type

// Fields implements TypeFinder.
func (s structsByName) Fields(name string) (map[string]*cel.Type, bool) {
	fields, ok := s[name]
	return fields, ok
}

// Estimate returns the maximum cost of an expression.
func (e *Env) Estimate(ast *cel.Ast, sizes SizeEstimator) (uint64, error) {
	cost, err := e.env.EstimateCost(ast, Costs{Sizes: sizes})
	return cost.Max, err
}

// Compile checks an expression and prepares it to run. The expression must have one of the wanted
// types, if any are given. cel.DynType stands for a type that is known only at run time.
func (e *Env) Compile(expression string, expected ...*cel.Type) (*Program, error) {
	ast, issues := e.Check(expression)
	if err := issues.Err(); err != nil {
		return nil, fmt.Errorf("compilation failed: %w", err)
	}
	out := ast.OutputType()
	if len(expected) > 0 && !slices.ContainsFunc(expected, out.IsExactType) {
		return nil, fmt.Errorf("%w: must evaluate to %s, not %s", ErrType, typeNames(expected), out)
	}
	runner, err := e.Runner(ast)
	if err != nil {
		return nil, err
	}
	return &Program{expression: expression, ast: ast, runner: runner}, nil
}

func typeNames(list []*cel.Type) string {
	names := make([]string, len(list))
	for i, t := range list {
		names[i] = t.String()
	}
	return strings.Join(names, " or ")
}

// structProvider adds struct types to the types of the libraries.
type structProvider struct {
	types.Provider
	find TypeFinder
}

// FindStructType implements types.Provider.
func (p *structProvider) FindStructType(name string) (*types.Type, bool) {
	if _, ok := p.find.Fields(name); ok {
		return types.NewTypeTypeWithParam(cel.ObjectType(name)), true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldNames implements types.Provider.
func (p *structProvider) FindStructFieldNames(name string) ([]string, bool) {
	if fields, ok := p.find.Fields(name); ok {
		return slices.Sorted(maps.Keys(fields)), true
	}
	return p.Provider.FindStructFieldNames(name)
}

// FindStructFieldType implements types.Provider. The accessors stay empty because the values are
// maps, which CEL reads itself.
func (p *structProvider) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	if fields, ok := p.find.Fields(name); ok {
		t, ok := fields[field]
		if !ok {
			return nil, false
		}
		return &types.FieldType{Type: t}, true
	}
	return p.Provider.FindStructFieldType(name, field)
}

// reservedWords holds the reserved words of CEL.
var reservedWords = func() map[string]bool {
	words := map[string]bool{}
	for w := range strings.FieldsSeq("true false null in as break const continue else for function if import let loop package namespace return var void while") {
		words[w] = true
	}
	return words
}()

// Escape returns the name that expressions use for a property of a typed object, or false if
// expressions cannot access the property:
//
//	"a-b/c.d" -> "a__dash__b__slash__c__dot__d"
//	"in"      -> "__in__", because it is a reserved word
//	"a b"     -> false
func Escape(name string) (string, bool) {
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		return "", false
	}
	if reservedWords[name] {
		return "__" + name + "__", true
	}
	var escaped strings.Builder
	for i := 0; i < len(name); i++ {
		c := name[i]
		switch {
		case c == '_' && i+1 < len(name) && name[i+1] == '_':
			escaped.WriteString("__underscores__")
			i++
		case c == '.':
			escaped.WriteString("__dot__")
		case c == '-':
			escaped.WriteString("__dash__")
		case c == '/':
			escaped.WriteString("__slash__")
		case c == '_', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
			escaped.WriteByte(c)
		default:
			return "", false
		}
	}
	return escaped.String(), true
}

// IsReserved reports whether a name is a reserved word of CEL. Expressions can access a property
// with such a name also by its unescaped name.
func IsReserved(name string) bool { return reservedWords[name] }
