package validate

import (
	"k8s.io/apimachinery/pkg/api/validation"

	"binnacle/libs/semantic"
)

// Immutable requires an unchanged value.
func (p Path) Immutable(name string, value, old any) {
	if !semantic.Equal(value, old) {
		p.Invalid(name, value, validation.FieldImmutableErrorMsg)
	}
}

// SemanticEqual reports whether two values have the same meaning: an empty list or map equals nil, and
// quantities are compared by their amounts.
func SemanticEqual(a, b any) bool { return semantic.Equal(a, b) }

// NotDecremented requires a counter that does not decrease.
func (p Path) NotDecremented(name string, value, old *int32) {
	switch {
	case old == nil:
	case value == nil:
		p.Invalid(name, int32(0), "cannot be decremented")
	case *value < *old:
		p.Invalid(name, *value, "cannot be decremented")
	}
}
