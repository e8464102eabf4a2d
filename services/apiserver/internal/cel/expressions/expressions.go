package expressions

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"

	"binnacle/libs/celenv"
)

// VariableSet selects what an expression can use in addition to the common variables object,
// oldObject, request and namespaceObject.
type VariableSet struct {
	// Params adds the variable params, the object to which a binding refers.
	Params bool
	// Authorizer adds authorizer and authorizer.requestResource.
	Authorizer bool
	// Patches adds the types of mutations: apply configurations and JSON patches.
	Patches bool
}

// Compiler compiles expressions without the variables of a policy.
type Compiler struct {
	base *celenv.BaseEnv
	// patches returns the base with the types of mutations. It builds it when first called.
	patches                    func() (*celenv.BaseEnv, error)
	types                      types
	requestType, namespaceType *cel.Type
	envs                       *envs
	budget                     *celenv.CheckBudget // set by WithLimit; nil means no limit
}

// New returns a compiler. It takes some milliseconds.
func New() (*Compiler, error) {
	base, err := celenv.NewBaseEnv()
	if err != nil {
		return nil, err
	}
	return newCompiler(base), nil
}

// WithStandardCosts returns a compiler whose programs charge a cost of 1 for each call of a
// function that is not part of CEL itself.
func (c *Compiler) WithStandardCosts() *Compiler { return newCompiler(c.base.WithStandardCosts()) }

// WithLimit returns a compiler for the expressions of one object. It bounds the total work of the
// type checker for them. It shares everything else with c. It is not safe for concurrent use.
func (c *Compiler) WithLimit() *Compiler {
	limited := *c
	limited.budget = &celenv.CheckBudget{}
	return &limited
}

func newCompiler(base *celenv.BaseEnv) *Compiler {
	compiler := &Compiler{base: base, patches: sync.OnceValues(base.Patches)}
	compiler.types, compiler.requestType, compiler.namespaceType = commonTypes()
	compiler.envs = &envs{compiler: compiler, types: compiler.types, built: map[VariableSet]*celenv.Env{}}
	return compiler
}

// envs holds a CEL environment for each VariableSet. It is safe for concurrent use.
type envs struct {
	compiler *Compiler
	types    types
	// overrides holds the types of additional variables, and more specific types of common ones.
	overrides map[string]*cel.Type
	// excluded is the name of a variable that no environment has, or "".
	excluded string

	mu    sync.Mutex // leaf lock
	built map[VariableSet]*celenv.Env
}

// get returns the environment with a set of variables. It creates it when it is first needed.
func (e *envs) get(visible VariableSet) (*celenv.Env, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if env := e.built[visible]; env != nil {
		return env, nil
	}
	compiler := e.compiler
	all := map[string]*cel.Type{
		object:          cel.DynType,
		oldObject:       cel.DynType,
		request:         compiler.requestType,
		namespaceObject: compiler.namespaceType,
	}
	if visible.Params {
		all[params] = cel.DynType
	}
	if visible.Authorizer {
		all[authorizer] = celenv.AuthorizerType
		all[requestResource] = celenv.ResourceCheckType
	}
	maps.Copy(all, e.overrides)
	delete(all, e.excluded)
	base := compiler.base
	if visible.Patches {
		var err error
		if base, err = compiler.patches(); err != nil {
			return nil, err
		}
	}
	env, err := base.Extend(all, e.types)
	if err == nil {
		e.built[visible] = env
	}
	return env, err
}

// outputType returns the type of an expression. It returns an error unless the type is one of
// expected; if expected is empty, every type is accepted. It charges the work to budget, which may be
// nil.
func (e *envs) outputType(
	budget *celenv.CheckBudget,
	visible VariableSet,
	expression string,
	expected []*cel.Type,
) (*cel.Type, error) {
	env, err := e.get(visible)
	if err != nil {
		return nil, err
	}
	return outputType(env.Within(budget), expression, expected)
}

// Check returns an error, with the wording of Kubernetes, unless the expression compiles and its
// type is one of expected. If expected is empty, every type is accepted.
func (c *Compiler) Check(visible VariableSet, expression string, expected ...*cel.Type) error {
	_, err := c.envs.outputType(c.budget, visible, expression, expected)
	return err
}

// outputType checks an expression in an environment and returns its type. It returns an error unless
// the type is one of expected. If expected is empty, every type is accepted.
func outputType(env *celenv.Env, expression string, expected []*cel.Type) (*cel.Type, error) {
	ast, issues := env.Check(expression)
	if issues.Err() != nil {
		return nil, errors.New("compilation failed: " + issues.String())
	}
	out := ast.OutputType()
	for _, t := range expected {
		if out.IsExactType(t) {
			return out, nil
		}
	}
	switch len(expected) {
	case 0:
		return out, nil
	case 1:
		return nil, fmt.Errorf("must evaluate to %s but got %s", expected[0], out)
	}
	names := make([]string, len(expected))
	for i, t := range expected {
		names[i] = t.String()
	}
	return nil, fmt.Errorf("must evaluate to one of [%s] but got %s", strings.Join(names, " "), out)
}

// Policy checks the expressions of one policy, including its variables. It is not safe for
// concurrent use.
type Policy struct {
	envs      *envs
	variables map[string]*cel.Type // types of the declared variables
	budget    *celenv.CheckBudget  // of the compiler
}

// Policy returns a policy without variables.
func (c *Compiler) Policy() *Policy {
	p := &Policy{variables: map[string]*cel.Type{}, budget: c.budget}
	p.envs = &envs{
		compiler: c, types: c.types.withType(variablesType.TypeName(), p.variables),
		overrides: map[string]*cel.Type{variables: variablesType}, built: map[VariableSet]*celenv.Env{},
	}
	return p
}

// Declare adds the variable variables.<name> to the policy, for expressions that are checked later.
// If its expression does not compile, Declare returns the error, and the variable has a dynamic
// type.
func (p *Policy) Declare(visible VariableSet, name, expression string) error {
	t, err := p.envs.outputType(p.budget, visible, expression, nil)
	p.variables[name] = variableType(t)
	return err
}

// Check returns an error, with the wording of Kubernetes, unless the expression compiles and its type
// is one of expected. If expected is empty, every type is accepted. The expression may use the
// declared variables.
func (p *Policy) Check(visible VariableSet, expression string, expected ...*cel.Type) error {
	_, err := p.envs.outputType(p.budget, visible, expression, expected)
	return err
}

// maxTypes is the maximum number of types in the type of a variable, as countTypes counts them. A
// variable with a larger type has the dynamic type. Without the limit, each variable could have a
// type twice as large as the previous one: [variables.a, variables.a].
const maxTypes = 32

// variableType returns the type of a variable whose expression has the type celType. It keeps the types
// of CEL itself. As in Kubernetes, other types become dynamic. So do types that are too large, and
// nil.
func variableType(celType *cel.Type) *cel.Type {
	if celType == nil || countTypes(celType, maxTypes+1) > maxTypes {
		return cel.DynType
	}
	switch celType.Kind() {
	case cel.ListKind:
		return cel.ListType(variableType(celType.Parameters()[0]))
	case cel.MapKind:
		return cel.MapType(variableType(celType.Parameters()[0]), variableType(celType.Parameters()[1]))
	case cel.BoolKind,
		cel.BytesKind,
		cel.DoubleKind,
		cel.DurationKind,
		cel.IntKind,
		cel.StringKind,
		cel.TimestampKind,
		cel.UintKind,
		cel.NullTypeKind:
		return celType
	}
	return cel.DynType
}

// countTypes returns the number of types in a type, including the type itself: 3 for map(string,
// int). It stops counting at limit.
func countTypes(t *cel.Type, limit int) int {
	n := 1
	for _, p := range t.Parameters() {
		if n < limit {
			n += countTypes(p, limit-n)
		}
	}
	return n
}

// Compile compiles an expression, whose type must be one of expected. If expected is empty, every
// type is accepted. The program is evaluated with the values of Input.Values.
func (c *Compiler) Compile(visible VariableSet, expression string, expected ...*cel.Type) (*celenv.Program, error) {
	if err := c.Check(visible, expression, expected...); err != nil {
		return nil, err
	}
	env, err := c.envs.get(visible)
	if err != nil {
		return nil, err
	}
	return env.Compile(expression)
}
