package celenv

import (
	"fmt"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// opaque is what the values of this package have in common: they are of one
// type, and become text at most.
type opaque struct {
	kind *types.Type
	text func() string // nil if it has none
}

// ConvertToNative implements ref.Val.
func (o opaque) ConvertToNative(want reflect.Type) (any, error) {
	if o.text != nil && want.Kind() == reflect.String {
		return o.text(), nil
	}
	return nil, fmt.Errorf("type conversion error from '%s' to '%v'", o.kind, want)
}

// Type implements ref.Val.
func (o opaque) Type() ref.Type { return o.kind }

// convert is ConvertToType of a value.
func (o opaque) convert(self ref.Val, to ref.Type) ref.Val {
	switch to.TypeName() {
	case o.kind.TypeName():
		return self
	case types.TypeType.TypeName():
		return o.kind
	case types.StringType.TypeName():
		if o.text != nil {
			return types.String(o.text())
		}
	}
	return types.NewErr("type conversion error from '%s' to '%s'", o.kind, to)
}
