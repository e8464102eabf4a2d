package expressions

import (
	"maps"

	"github.com/google/cel-go/cel"

	"binnacle/libs/celenv"
)

// Objects describes the types of the objects in expressions.
type Objects struct {
	// Object is the type of object and oldObject, Params that of params. A nil type is dynamic.
	Object, Params *cel.Type
	// Types holds the fields of all object types that they refer to, by name.
	Types map[string]map[string]*cel.Type
}

// WithTypes returns a policy whose expressions are checked against the types of objects. As in
// Kubernetes 1.33, they do not see authorizer.requestResource.
func (c *Compiler) WithTypes(o Objects) *Policy {
	p := &Policy{fields: map[string]*cel.Type{}}
	types := maps.Clone(c.types)
	maps.Copy(types, o.Types)
	types[variablesType.TypeName()] = p.fields
	more := map[string]*cel.Type{variables: variablesType}
	for _, v := range []struct {
		name string
		of   *cel.Type
	}{{object, o.Object}, {oldObject, o.Object}, {params, o.Params}} {
		if v.of != nil {
			more[v.name] = v.of
		}
	}
	p.envs = &envs{compiler: c, types: types, more: more, without: requestResource, made: map[VariableSet]*celenv.Env{}}
	return p
}

// Issues returns the compiler's errors for an expression, or "".
func (p *Policy) Issues(visible VariableSet, expression string) (string, error) {
	env, err := p.envs.get(visible)
	if err != nil {
		return "", err
	}
	if _, issues := env.Check(expression); issues.Err() != nil {
		return issues.String(), nil
	}
	return "", nil
}
