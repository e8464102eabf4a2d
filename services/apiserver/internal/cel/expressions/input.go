package expressions

import (
	"github.com/google/cel-go/common/types/ref"
)

// Input holds the values of the variables for one request.
type Input struct {
	// These functions return the value of a variable: a tree of maps and lists, or nil for null.
	// They are called when an expression reads the variable.
	Object, OldObject, Request, NamespaceObject func() any
	// Authorizer and RequestResource are nil if no expression can use them.
	Authorizer, RequestResource ref.Val
	// Params is the parameter of a policy as a tree, or nil for null.
	Params any
	// Variables holds the variables of a policy (see the function Variables), or nil.
	Variables ref.Val
}

// Values returns the values of the variables by name, for celenv.Program.
func (i *Input) Values() map[string]any {
	values := map[string]any{
		object:          i.Object,
		oldObject:       i.OldObject,
		request:         i.Request,
		namespaceObject: i.NamespaceObject,
		params:          i.Params,
	}
	if i.Authorizer != nil {
		values[authorizer] = i.Authorizer
		values[requestResource] = i.RequestResource
	}
	if i.Variables != nil {
		values[variables] = i.Variables
	}
	return values
}
