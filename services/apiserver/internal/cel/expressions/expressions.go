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

// VariableSet selects the variables of an expression, in addition to the common ones.
type VariableSet struct {
	// Params is the object to which a binding refers.
	Params bool
	// Authorizer checks what the user may do.
	Authorizer bool
	// Patches enables the types for changes of objects.
	Patches bool
}

// Compiler compiles expressions without the variables of a policy.
type Compiler struct {
	base *celenv.BaseEnv
	// patches is a base with the types for changes, built on first use.
	patches                   func() (*celenv.BaseEnv, error)
	types                     types
	requestType, namespaceOne *cel.Type
	envs                      *envs
	budget                    *celenv.CheckBudget // may be nil
}

// New returns a compiler. That takes milliseconds.
func New() (*Compiler, error) {
	base, err := celenv.NewBaseEnv()
	if err != nil {
		return nil, err
	}
	return newCompiler(base), nil
}

// WithStandardCosts returns a compiler whose programs charge 1 for a call of a function that is not
// part of CEL itself.
func (c *Compiler) WithStandardCosts() *Compiler { return newCompiler(c.base.WithStandardCosts()) }

// WithLimit returns a compiler that checks the expressions of one object, within a limit for all of
// them. It shares everything else with c. It is not safe for concurrent use.
func (c *Compiler) WithLimit() *Compiler {
	limited := *c
	limited.budget = &celenv.CheckBudget{}
	return &limited
}

func newCompiler(base *celenv.BaseEnv) *Compiler {
	c := &Compiler{base: base, patches: sync.OnceValues(base.Patches)}
	c.types, c.requestType, c.namespaceOne = commonTypes()
	c.envs = &envs{compiler: c, types: c.types, built: map[VariableSet]*celenv.Env{}}
	return c
}

// envs holds an environment per choice of variables, built on first use.
type envs struct {
	compiler *Compiler
	types    types
	// overrides holds further common variables, and more specific types of the others.
	overrides map[string]*cel.Type
	// excluded is the name of a variable that no environment has.
	excluded string

	mu    sync.Mutex // leaf lock
	built map[VariableSet]*celenv.Env
}

// get returns the environment with a set of variables. It is created on first use.
func (e *envs) get(visible VariableSet) (*celenv.Env, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if env := e.built[visible]; env != nil {
		return env, nil
	}
	c := e.compiler
	all := map[string]*cel.Type{object: cel.DynType, oldObject: cel.DynType, request: c.requestType, namespaceObject: c.namespaceOne}
	if visible.Params {
		all[params] = cel.DynType
	}
	if visible.Authorizer {
		all[authorizer], all[requestResource] = celenv.AuthorizerType, celenv.ResourceCheckType
	}
	maps.Copy(all, e.overrides)
	delete(all, e.excluded)
	base := c.base
	if visible.Patches {
		var err error
		if base, err = c.patches(); err != nil {
			return nil, err
		}
	}
	env, err := base.Extend(all, e.types)
	if err == nil {
		e.built[visible] = env
	}
	return env, err
}

// check returns the type of an expression, or its error.
func (e *envs) check(b *celenv.CheckBudget, visible VariableSet, expression string, expected []*cel.Type) (*cel.Type, error) {
	env, err := e.get(visible)
	if err != nil {
		return nil, err
	}
	return check(env.Within(b), expression, expected)
}

// Check returns the error, in the words of Kubernetes, of an expression that must have one of the
// expected types.
func (c *Compiler) Check(visible VariableSet, expression string, expected ...*cel.Type) error {
	_, err := c.envs.check(c.budget, visible, expression, expected)
	return err
}

// check returns the type of an expression, or its error.
func check(env *celenv.Env, expression string, expected []*cel.Type) (*cel.Type, error) {
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

// Policy compiles the expressions of one policy, including its variables. It is not safe for
// concurrent use.
type Policy struct {
	envs   *envs
	fields map[string]*cel.Type
	budget *celenv.CheckBudget // of the compiler
}

// Policy returns a policy without variables.
func (c *Compiler) Policy() *Policy {
	p := &Policy{fields: map[string]*cel.Type{}, budget: c.budget}
	p.envs = &envs{
		compiler: c, types: c.types.withType(variablesType.TypeName(), p.fields),
		overrides: map[string]*cel.Type{variables: variablesType}, built: map[VariableSet]*celenv.Env{},
	}
	return p
}

// Declare adds a variable and returns its error. Expressions that are compiled later see the
// variable. It has a dynamic type if it does not compile.
func (p *Policy) Declare(visible VariableSet, name, expression string) error {
	t, err := p.envs.check(p.budget, visible, expression, nil)
	p.fields[name] = variableType(t)
	return err
}

// Check returns the error of an expression like Compiler.Check. The expression may use the policy's
// variables.
func (p *Policy) Check(visible VariableSet, expression string, expected ...*cel.Type) error {
	_, err := p.envs.check(p.budget, visible, expression, expected)
	return err
}

// maxTypes is the maximum number of types that make up the type of a variable. Without it, each
// variable could double the size of another one's type.
const maxTypes = 32

// variableType returns the type of a variable for the type of its expression: types of CEL itself
// are unchanged. Like in Kubernetes, all others are dynamic, and so are types that are too large.
func variableType(t *cel.Type) *cel.Type {
	if t == nil || countTypes(t, maxTypes+1) > maxTypes {
		return cel.DynType
	}
	switch t.Kind() {
	case cel.ListKind:
		return cel.ListType(variableType(t.Parameters()[0]))
	case cel.MapKind:
		return cel.MapType(variableType(t.Parameters()[0]), variableType(t.Parameters()[1]))
	case cel.BoolKind, cel.BytesKind, cel.DoubleKind, cel.DurationKind, cel.IntKind, cel.StringKind, cel.TimestampKind, cel.UintKind, cel.NullTypeKind:
		return t
	}
	return cel.DynType
}

// countTypes returns the number of types that make up a type, including itself, counted up to a
// limit.
func countTypes(t *cel.Type, limit int) int {
	n := 1
	for _, p := range t.Parameters() {
		if n < limit {
			n += countTypes(p, limit-n)
		}
	}
	return n
}

// Compile compiles an expression that must have one of the wanted types. Input.Values returns the
// values of its variables.
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
