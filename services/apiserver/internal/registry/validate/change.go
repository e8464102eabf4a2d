package validate

import (
	"k8s.io/apimachinery/pkg/api/validation"

	"binnacle/libs/semantic"
)

// Immutable requires an unchanged value.
func (a At) Immutable(name string, value, old any) {
	if !semantic.Equal(value, old) {
		a.Invalid(name, value, validation.FieldImmutableErrorMsg)
	}
}

// Same reports whether two values have the same meaning: an empty list or map equals nil, and
// quantities are compared by their amounts.
func Same(a, b any) bool { return semantic.Equal(a, b) }

// NotDecremented requires a counter that does not decrease.
func (a At) NotDecremented(name string, value, old *int32) {
	switch {
	case old == nil:
	case value == nil:
		a.Invalid(name, int32(0), "cannot be decremented")
	case *value < *old:
		a.Invalid(name, *value, "cannot be decremented")
	}
}
