package validate

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A Declaration is a declarative rule of a field, such as a minimum. It returns the errors of a
// value, which may be nil. stop skips the remaining declarations.
type Declaration[T any] func(path *field.Path, value *T) (errs field.ErrorList, stop bool)

// Declared applies the declarations of a field in order.
func Declared[T any](a At, name string, value *T, declarations ...Declaration[T]) {
	for _, d := range declarations {
		errs, stop := d(a.to(name), value)
		a.Add(errs...)
		if stop {
			return
		}
	}
}

// Required declares that a field must be set.
func Required[T any]() Declaration[T] {
	return func(path *field.Path, value *T) (field.ErrorList, bool) {
		if value == nil {
			return field.ErrorList{field.Required(path, "")}, true
		}
		return nil, false
	}
}

// Minimum declares the minimum of a field.
func Minimum[T cmp.Ordered](least T) Declaration[T] {
	return func(path *field.Path, value *T) (field.ErrorList, bool) {
		if value == nil || *value >= least {
			return nil, false
		}
		return field.ErrorList{
			field.Invalid(path, *value, fmt.Sprintf("must be greater than or equal to %v", least)).WithOrigin("minimum"),
		}, false
	}
}

// Covered marks the errors of a rule as covered by a declaration with the name origin.
func (a At) Covered(origin string, rule func()) {
	count := len(*a.errs)
	rule()
	for _, e := range (*a.errs)[count:] {
		e.CoveredByDeclarative = true
		e.Origin = origin
	}
}
