package expressions

import (
	"github.com/google/cel-go/common/types/ref"
)

// Input has the values of the variables. Those that are functions are asked when
// an expression reads them.
type Input struct {
	// Object and OldObject are trees; nil is null.
	Object, OldObject, Request, NamespaceObject func() any
	// Authorizer and RequestResource may be nil where no expression sees them.
	Authorizer, RequestResource ref.Val
	Params                      any
	// Variables are those of a policy; nil where there are none.
	Variables ref.Val
}

// Values of the variables by their names.
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
