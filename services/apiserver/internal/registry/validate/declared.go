package validate

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A DeclarativeRule is a declarative rule of a field, such as a minimum. It returns the errors of a
// value, which may be nil. stop skips the remaining declarations.
type DeclarativeRule[T any] func(path *field.Path, value *T) (errs field.ErrorList, stop bool)

// Declarative applies the declarations of a field in order.
func Declarative[T any](f Field, name string, value *T, declarations ...DeclarativeRule[T]) {
	for _, d := range declarations {
		errs, stop := d(f.childPath(name), value)
		f.Add(errs...)
		if stop {
			return
		}
	}
}

// Required declares that a field must be set.
func Required[T any]() DeclarativeRule[T] {
	return func(path *field.Path, value *T) (field.ErrorList, bool) {
		if value == nil {
			return field.ErrorList{field.Required(path, "")}, true
		}
		return nil, false
	}
}

// Minimum declares the minimum of a field.
func Minimum[T cmp.Ordered](least T) DeclarativeRule[T] {
	return func(path *field.Path, value *T) (field.ErrorList, bool) {
		if value == nil || *value >= least {
			return nil, false
		}
		return field.ErrorList{
			field.Invalid(path, *value, fmt.Sprintf("must be greater than or equal to %v", least)).WithOrigin("minimum"),
		}, false
	}
}

// CoveredByDeclarative marks the errors of a rule as covered by a declaration with the name origin.
func (f Field) CoveredByDeclarative(origin string, rule func()) {
	count := len(*f.errs)
	rule()
	for _, e := range (*f.errs)[count:] {
		e.CoveredByDeclarative = true
		e.Origin = origin
	}
}
