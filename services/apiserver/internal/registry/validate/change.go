package validate

import (
	"k8s.io/apimachinery/pkg/api/validation"

	"binnacle/libs/semantic"
)

// CheckImmutable requires an unchanged value.
func (f Field) CheckImmutable(name string, value, old any) {
	if !semantic.Equal(value, old) {
		f.Invalid(name, value, validation.FieldImmutableErrorMsg)
	}
}

// SemanticEqual reports whether two values have the same meaning: an empty list or map equals nil,
// and quantities are compared by their amounts.
func SemanticEqual(a, b any) bool { return semantic.Equal(a, b) }

// CheckNotDecremented requires a counter that does not decrease.
func (f Field) CheckNotDecremented(name string, value, old *int32) {
	switch {
	case old == nil:
	case value == nil:
		f.Invalid(name, int32(0), "cannot be decremented")
	case *value < *old:
		f.Invalid(name, *value, "cannot be decremented")
	}
}
