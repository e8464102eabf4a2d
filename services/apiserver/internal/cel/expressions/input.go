package expressions

import (
	"github.com/google/cel-go/common/types/ref"
)

// Input holds the values of the variables. Functions are called when an expression reads the
// variable.
type Input struct {
	// Object and OldObject return trees; nil is null.
	Object, OldObject, Request, NamespaceObject func() any
	// Authorizer and RequestResource may be nil if no expression sees them.
	Authorizer, RequestResource ref.Val
	Params                      any
	// Variables holds the variables of a policy; nil if there are none.
	Variables ref.Val
}

// Values returns the values of the variables by name.
func (i *Input) Values() map[string]any {
	v := map[string]any{object: i.Object, oldObject: i.OldObject, request: i.Request, namespaceObject: i.NamespaceObject, params: i.Params}
	if i.Authorizer != nil {
		v[authorizer], v[requestResource] = i.Authorizer, i.RequestResource
	}
	if i.Variables != nil {
		v[variables] = i.Variables
	}
	return v
}
