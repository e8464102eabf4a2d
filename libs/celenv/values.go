package celenv

import (
	"fmt"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// opaque is the common part of the values of this package. They have one type and convert at most
// to text.
type opaque struct {
	kind *types.Type
	text func() string // nil if the value has no text
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

// convert implements ConvertToType for the value self.
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
