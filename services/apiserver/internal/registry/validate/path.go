package validate

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Path is a field.Path with the list of the object's errors. Rules take the name of a field below the
// path. An empty name stands for the path itself.
type Path struct {
	path *field.Path
	errs *field.ErrorList
}

// Check applies rules to an object and returns the errors.
func Check(rules func(Path)) field.ErrorList { return CheckAt(nil, rules) }

// CheckAt is Check for a part of an object at a path.
func CheckAt(path *field.Path, rules func(Path)) field.ErrorList {
	var errs field.ErrorList
	rules(Path{path: path, errs: &errs})
	return errs
}

// Child returns the path of a field, or of a nested field.
func (p Path) Child(name string, more ...string) Path {
	return Path{p.path.Child(name, more...), p.errs}
}

// Index returns the path of an element of the list in a field.
func (p Path) Index(name string, i int) Path { return Path{p.childPath(name).Index(i), p.errs} }

// Key returns the path of a value of the map in a field.
func (p Path) Key(name, key string) Path { return Path{p.childPath(name).Key(key), p.errs} }

// FieldPath returns the path.
func (p Path) FieldPath() *field.Path { return p.path }

// ErrorCount returns the number of errors so far, anywhere in the object.
func (p Path) ErrorCount() int { return len(*p.errs) }

// Add records errors.
func (p Path) Add(errs ...*field.Error) { *p.errs = append(*p.errs, errs...) }

// childPath returns the path of a field.
func (p Path) childPath(name string) *field.Path {
	if name == "" {
		return p.path
	}
	return p.path.Child(name)
}

// Each applies rules to the elements of the list in a field.
func Each[T any](p Path, name string, list []T, rules func(Path, *T)) {
	for i := range list {
		rules(p.Index(name, i), &list[i])
	}
}

// Optional applies rules to a field that is set.
func Optional[T any](p Path, name string, value *T, rules func(Path, *T)) {
	if value != nil {
		rules(p.Child(name), value)
	}
}

// Present records an error unless a required field is set.
func (p Path) Present(name string, present bool) {
	if !present {
		p.Required(name, "")
	}
}

// PresentWithDetail is Present with a reason.
func (p Path) PresentWithDetail(name string, present bool, detail string) {
	if !present {
		p.Required(name, detail)
	}
}

// Absent records an error if a field is set.
func (p Path) Absent(name string, set bool, detail string) {
	if set {
		p.Forbidden(name, detail)
	}
}

// Required records that a required field is missing.
func (p Path) Required(name, detail string) { p.Add(field.Required(p.childPath(name), detail)) }

// Invalid records an invalid value.
func (p Path) Invalid(name string, value any, detail string) {
	p.Add(field.Invalid(p.childPath(name), InternalValue(value), detail))
}

// Forbidden records a field that must not be set.
func (p Path) Forbidden(name, detail string) { p.Add(field.Forbidden(p.childPath(name), detail)) }

// Duplicate records a value that occurs twice.
func (p Path) Duplicate(name string, value any) {
	p.Add(field.Duplicate(p.childPath(name), InternalValue(value)))
}

// NotFound records a reference to a value that does not exist.
func (p Path) NotFound(name string, value any) { p.Add(field.NotFound(p.childPath(name), value)) }

// DuplicateWithDetail is Duplicate with a reason.
func (p Path) DuplicateWithDetail(name string, value any, detail string) {
	err := field.Duplicate(p.childPath(name), InternalValue(value))
	err.Detail = detail
	p.Add(err)
}

// InvalidOmitValue is Invalid for a value that the error does not show.
func (p Path) InvalidOmitValue(name, detail string) { p.Invalid(name, field.OmitValueType{}, detail) }

// RecordTwice applies rules once and records their errors twice. For some kinds, Kubernetes validates a
// changed object first like a new one and then as a change, and reports both results.
func (p Path) RecordTwice(rules func()) {
	count := len(*p.errs)
	rules()
	p.Add((*p.errs)[count:]...)
}

// TooLong records a value of more than maximum bytes. The error does not show the value.
func (p Path) TooLong(name string, maximum int) { p.Add(field.TooLong(p.childPath(name), "", maximum)) }

// TooMany records a list of more than maximum elements.
func (p Path) TooMany(name string, actual, maximum int) {
	p.Add(field.TooMany(p.childPath(name), actual, maximum))
}
