package expressions

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"

	"binnacle/libs/celenv"
)

// Sees says which variables an expression has, besides those that all have.
type Sees struct {
	// Params is the object that a binding names.
	Params bool
	// Authorizer answers what the user may do.
	Authorizer bool
}

// Compiler compiles expressions that know no variables of a policy.
type Compiler struct {
	base                      *celenv.Base
	types                     types
	requestType, namespaceOne *cel.Type
	envs                      map[Sees]*celenv.Env
}

// New makes a compiler. That takes milliseconds.
func New() (*Compiler, error) {
	base, err := celenv.NewBase()
	if err != nil {
		return nil, err
	}
	c := &Compiler{base: base, envs: map[Sees]*celenv.Env{}}
	c.types, c.requestType, c.namespaceOne = known()
	c.envs, err = c.extend(c.types, nil)
	return c, err
}

// extend makes the environments of every choice of variables.
func (c *Compiler) extend(known types, more map[string]*cel.Type) (map[Sees]*celenv.Env, error) {
	out := map[Sees]*celenv.Env{}
	for _, sees := range []Sees{{}, {Params: true}, {Authorizer: true}, {Params: true, Authorizer: true}} {
		all := map[string]*cel.Type{object: cel.DynType, oldObject: cel.DynType, request: c.requestType, namespaceObject: c.namespaceOne}
		if sees.Params {
			all[params] = cel.DynType
		}
		if sees.Authorizer {
			all[authorizer], all[requestResource] = celenv.AuthorizerType, celenv.ResourceCheckType
		}
		for name, t := range more {
			all[name] = t
		}
		env, err := c.base.Extend(all, known)
		if err != nil {
			return nil, err
		}
		out[sees] = env
	}
	return out, nil
}

// Check returns what is wrong with an expression that must be of one of the
// wanted types, in the words of Kubernetes.
func (c *Compiler) Check(sees Sees, expression string, want ...*cel.Type) error {
	_, err := check(c.envs[sees], expression, want)
	return err
}

// check also returns the type of an expression that compiles.
func check(env *celenv.Env, expression string, want []*cel.Type) (*cel.Type, error) {
	ast, issues := env.Check(expression)
	if issues.Err() != nil {
		return nil, errors.New("compilation failed: " + issues.String())
	}
	out := ast.OutputType()
	for _, t := range want {
		if out.IsExactType(t) {
			return out, nil
		}
	}
	switch len(want) {
	case 0:
		return out, nil
	case 1:
		return nil, fmt.Errorf("must evaluate to %s but got %s", want[0], out)
	}
	names := make([]string, len(want))
	for i, t := range want {
		names[i] = t.String()
	}
	return nil, fmt.Errorf("must evaluate to one of [%s] but got %s", strings.Join(names, " "), out)
}

// Policy compiles the expressions of one policy, which see the variables that
// it declares. It is for one goroutine.
type Policy struct {
	envs   map[Sees]*celenv.Env
	fields map[string]*cel.Type
}

// Policy begins with one that has no variables.
func (c *Compiler) Policy() (*Policy, error) {
	p := &Policy{fields: map[string]*cel.Type{}}
	var err error
	p.envs, err = c.extend(c.types.with(variablesType.TypeName(), p.fields), map[string]*cel.Type{variables: variablesType})
	return p, err
}

// Declare adds a variable and returns what is wrong with it. The expressions
// that are compiled later see it; it is of any type if it does not compile.
func (p *Policy) Declare(sees Sees, name, expression string) error {
	t, err := check(p.envs[sees], expression, nil)
	p.fields[name] = plain(t)
	return err
}

// Check is Compiler.Check for an expression that sees the variables.
func (p *Policy) Check(sees Sees, expression string, want ...*cel.Type) error {
	_, err := check(p.envs[sees], expression, want)
	return err
}

// plain keeps types of values that the language knows by itself; of others,
// nothing is known, as in Kubernetes.
func plain(t *cel.Type) *cel.Type {
	if t == nil {
		return cel.DynType
	}
	switch t.Kind() {
	case cel.ListKind:
		return cel.ListType(plain(t.Parameters()[0]))
	case cel.MapKind:
		return cel.MapType(plain(t.Parameters()[0]), plain(t.Parameters()[1]))
	case cel.BoolKind, cel.BytesKind, cel.DoubleKind, cel.DurationKind, cel.IntKind, cel.StringKind, cel.TimestampKind, cel.UintKind, cel.NullTypeKind:
		return t
	}
	return cel.DynType
}

// Compile makes an expression ready to run, which must be of one of the wanted
// types. The values of its variables are named as Names has them.
func (c *Compiler) Compile(sees Sees, expression string, want ...*cel.Type) (*celenv.Program, error) {
	if err := c.Check(sees, expression, want...); err != nil {
		return nil, err
	}
	return c.envs[sees].Compile(expression)
}
