package validate

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Field is a field.Path with the list of the object's errors. Rules take the name of a field below
// the path. An empty name stands for the path itself.
type Field struct {
	path *field.Path
	errs *field.ErrorList
}

// Check applies rules to an object and returns the errors.
func Check(rules func(Field)) field.ErrorList { return CheckAt(nil, rules) }

// CheckAt applies rules to the part of an object at a path, and returns the errors.
func CheckAt(path *field.Path, rules func(Field)) field.ErrorList {
	var errs field.ErrorList
	rules(Field{path: path, errs: &errs})
	return errs
}

// Child returns the path of a field, or of a nested field.
func (f Field) Child(name string, more ...string) Field {
	return Field{f.path.Child(name, more...), f.errs}
}

// Index returns the path of an element of the list in a field.
func (f Field) Index(name string, i int) Field { return Field{f.childPath(name).Index(i), f.errs} }

// Key returns the path of a value of the map in a field.
func (f Field) Key(name, key string) Field { return Field{f.childPath(name).Key(key), f.errs} }

// FieldPath returns the path.
func (f Field) FieldPath() *field.Path { return f.path }

// ErrorCount returns the number of errors so far, anywhere in the object.
func (f Field) ErrorCount() int { return len(*f.errs) }

// Add records errors.
func (f Field) Add(errs ...*field.Error) { *f.errs = append(*f.errs, errs...) }

func (f Field) childPath(name string) *field.Path {
	if name == "" {
		return f.path
	}
	return f.path.Child(name)
}

// Each applies rules to the elements of the list in a field.
func Each[T any](f Field, name string, list []T, rules func(Field, *T)) {
	for i := range list {
		rules(f.Index(name, i), &list[i])
	}
}

// Optional applies rules to a field that is set.
func Optional[T any](f Field, name string, value *T, rules func(Field, *T)) {
	if value != nil {
		rules(f.Child(name), value)
	}
}

// RequireSet records an error unless a required field is set.
func (f Field) RequireSet(name string, present bool) {
	if !present {
		f.Required(name, "")
	}
}

// RequireSetWithDetail records an error with a reason unless a required field is set.
func (f Field) RequireSetWithDetail(name string, present bool, detail string) {
	if !present {
		f.Required(name, detail)
	}
}

// ForbidSet records an error if a field is set.
func (f Field) ForbidSet(name string, set bool, detail string) {
	if set {
		f.Forbidden(name, detail)
	}
}

// Required records that a required field is missing.
func (f Field) Required(name, detail string) { f.Add(field.Required(f.childPath(name), detail)) }

// Invalid records an invalid value.
func (f Field) Invalid(name string, value any, detail string) {
	f.Add(field.Invalid(f.childPath(name), InternalValue(value), detail))
}

// Forbidden records a field that must not be set.
func (f Field) Forbidden(name, detail string) { f.Add(field.Forbidden(f.childPath(name), detail)) }

// Duplicate records a value that occurs twice.
func (f Field) Duplicate(name string, value any) {
	f.Add(field.Duplicate(f.childPath(name), InternalValue(value)))
}

// NotFound records a reference to a value that does not exist.
func (f Field) NotFound(name string, value any) { f.Add(field.NotFound(f.childPath(name), value)) }

// DuplicateWithDetail records a value that occurs twice, with a reason.
func (f Field) DuplicateWithDetail(name string, value any, detail string) {
	err := field.Duplicate(f.childPath(name), InternalValue(value))
	err.Detail = detail
	f.Add(err)
}

// InvalidOmitValue records an invalid value that the error does not show.
func (f Field) InvalidOmitValue(name, detail string) { f.Invalid(name, field.OmitValueType{}, detail) }

// RecordTwice applies rules once and records their errors twice. For some kinds, Kubernetes
// validates a changed object first like a new one and then as a change, and reports both results.
func (f Field) RecordTwice(rules func()) {
	count := len(*f.errs)
	rules()
	f.Add((*f.errs)[count:]...)
}

// TooLong records a value of more than maximum bytes. The error does not show the value.
func (f Field) TooLong(name string, maximum int) {
	f.Add(field.TooLong(f.childPath(name), "", maximum))
}

// TooMany records a list of more than maximum elements.
func (f Field) TooMany(name string, actual, maximum int) {
	f.Add(field.TooMany(f.childPath(name), actual, maximum))
}
