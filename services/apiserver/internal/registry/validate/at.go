package validate

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// At is a path in an object, with the list of the object's errors. Rules take the name of a field below
// the path. An empty name stands for the path itself.
type At struct {
	path *field.Path
	errs *field.ErrorList
}

// Check applies rules to an object and returns the errors.
func Check(rules func(At)) field.ErrorList { return CheckAt(nil, rules) }

// CheckAt is Check for a part of an object at a path.
func CheckAt(path *field.Path, rules func(At)) field.ErrorList {
	var errs field.ErrorList
	rules(At{path: path, errs: &errs})
	return errs
}

// Child returns the path of a field, or of a nested field.
func (a At) Child(name string, more ...string) At {
	return At{a.path.Child(name, more...), a.errs}
}

// Index returns the path of an element of the list in a field.
func (a At) Index(name string, i int) At { return At{a.to(name).Index(i), a.errs} }

// Key returns the path of a value of the map in a field.
func (a At) Key(name, key string) At { return At{a.to(name).Key(key), a.errs} }

// Path returns the path.
func (a At) Path() *field.Path { return a.path }

// Found returns the number of errors so far, anywhere in the object.
func (a At) Found() int { return len(*a.errs) }

// Add records errors.
func (a At) Add(errs ...*field.Error) { *a.errs = append(*a.errs, errs...) }

// to returns the path of a field.
func (a At) to(name string) *field.Path {
	if name == "" {
		return a.path
	}
	return a.path.Child(name)
}

// Each applies rules to the elements of the list in a field.
func Each[T any](a At, name string, list []T, rules func(At, *T)) {
	for i := range list {
		rules(a.Index(name, i), &list[i])
	}
}

// Optional applies rules to a field that is set.
func Optional[T any](a At, name string, value *T, rules func(At, *T)) {
	if value != nil {
		rules(a.Child(name), value)
	}
}

// Present records an error unless a required field is set.
func (a At) Present(name string, present bool) {
	if !present {
		a.Required(name, "")
	}
}

// Needs is Present with a reason.
func (a At) Needs(name string, present bool, detail string) {
	if !present {
		a.Required(name, detail)
	}
}

// Absent records an error if a field is set.
func (a At) Absent(name string, set bool, detail string) {
	if set {
		a.Forbidden(name, detail)
	}
}

// Required records that a required field is missing.
func (a At) Required(name, detail string) { a.Add(field.Required(a.to(name), detail)) }

// Invalid records an invalid value.
func (a At) Invalid(name string, value any, detail string) {
	a.Add(field.Invalid(a.to(name), Internal(value), detail))
}

// Forbidden records a field that must not be set.
func (a At) Forbidden(name, detail string) { a.Add(field.Forbidden(a.to(name), detail)) }

// Duplicate records a value that occurs twice.
func (a At) Duplicate(name string, value any) { a.Add(field.Duplicate(a.to(name), Internal(value))) }

// NotFound records a reference to a value that does not exist.
func (a At) NotFound(name string, value any) { a.Add(field.NotFound(a.to(name), value)) }

// DuplicateOf is Duplicate with a reason.
func (a At) DuplicateOf(name string, value any, detail string) {
	err := field.Duplicate(a.to(name), Internal(value))
	err.Detail = detail
	a.Add(err)
}

// Wrong is Invalid for a value that the error does not show.
func (a At) Wrong(name, detail string) { a.Invalid(name, field.OmitValueType{}, detail) }

// Twice applies rules once and records their errors twice. For some kinds, Kubernetes validates a
// changed object first like a new one and then as a change, and reports both results.
func (a At) Twice(rules func()) {
	count := len(*a.errs)
	rules()
	a.Add((*a.errs)[count:]...)
}

// TooLong records a value of more than maximum bytes. The error does not show the value.
func (a At) TooLong(name string, maximum int) { a.Add(field.TooLong(a.to(name), "", maximum)) }

// TooMany records a list of more than maximum elements.
func (a At) TooMany(name string, actual, maximum int) {
	a.Add(field.TooMany(a.to(name), actual, maximum))
}
