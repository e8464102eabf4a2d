package expressions

import (
	"maps"

	"github.com/google/cel-go/cel"

	"binnacle/libs/celenv"
)

// ObjectTypes holds the types of the objects that expressions use. A nil type is dynamic.
type ObjectTypes struct {
	// Object is the type of the variables object and oldObject.
	Object *cel.Type
	// Params is the type of the variable params.
	Params *cel.Type
	// Types maps each type name to its fields. It includes all types that Object and Params refer
	// to.
	Types map[string]map[string]*cel.Type
}

// WithTypes returns a policy whose expressions are checked against the types of objects. As in the
// type checking of Kubernetes 1.33, they cannot use authorizer.requestResource.
func (c *Compiler) WithTypes(o ObjectTypes) *Policy {
	policy := &Policy{variables: map[string]*cel.Type{}}
	types := maps.Clone(c.types)
	maps.Copy(types, o.Types)
	types[variablesType.TypeName()] = policy.variables
	overrides := map[string]*cel.Type{variables: variablesType}
	for name, t := range map[string]*cel.Type{object: o.Object, oldObject: o.Object, params: o.Params} {
		if t != nil {
			overrides[name] = t
		}
	}
	policy.envs = &envs{
		compiler:  c,
		types:     types,
		overrides: overrides,
		excluded:  requestResource,
		built:     map[VariableSet]*celenv.Env{},
	}
	return policy
}

// Issues returns the errors that the compiler finds in an expression, or "" if there are none. The
// error reports that no environment could be created; it is not about the expression.
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
