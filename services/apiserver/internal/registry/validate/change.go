package validate

import (
	"k8s.io/apimachinery/pkg/api/validation"

	"binnacle/libs/semantic"
)

// Immutable requires an unchanged value.
func (a At) Immutable(name string, now, before any) {
	if !semantic.Equal(now, before) {
		a.Invalid(name, now, validation.FieldImmutableErrorMsg)
	}
}

// Same reports whether two values have the same meaning: an empty list or map equals nil, and
// quantities are compared by their amounts.
func Same(a, b any) bool { return semantic.Equal(a, b) }

// NotDecremented requires a counter that does not decrease.
func (a At) NotDecremented(name string, now, before *int32) {
	switch {
	case before == nil:
	case now == nil:
		a.Invalid(name, int32(0), "cannot be decremented")
	case *now < *before:
		a.Invalid(name, *now, "cannot be decremented")
	}
}
