package validate

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// sortedKeys returns the keys of a map in order.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// EachKey applies rules to the values of the map in a field, in key order.
func EachKey[K ~string, V any](f Field, name string, m map[K]V, rules func(Field, K, V)) {
	if len(m) == 0 {
		return
	}
	for _, key := range sortedKeys(m) {
		rules(f.Key(name, string(key)), key, m[key])
	}
}

// A Set holds values that must be distinct.
type Set[K comparable] map[K]struct{}

// KeySet returns the set of a list's keys.
func KeySet[T any, K comparable](list []T, key func(*T) K) Set[K] {
	s := make(Set[K], len(list))
	for i := range list {
		s[key(&list[i])] = struct{}{}
	}
	return s
}

// KeyIndex returns the indexes of a list's elements by key. Of elements with equal keys, it returns
// the first.
func KeyIndex[T any, K comparable](list []T, key func(*T) K) map[K]int {
	indexes := make(map[K]int, len(list))
	for i := range slices.Backward(list) {
		indexes[key(&list[i])] = i
	}
	return indexes
}

// Has reports whether a value is in the set.
func (s Set[K]) Has(k K) bool { _, ok := s[k]; return ok }

// Add adds a value and reports whether it is new.
func (s Set[K]) Add(k K) bool {
	if s.Has(k) {
		return false
	}
	s[k] = struct{}{}
	return true
}

// MaxItems limits the number of elements.
func MaxItems[T any](f Field, name string, list []T, maximum int) {
	if len(list) > maximum {
		f.Add(field.TooMany(f.childPath(name), len(list), maximum))
	}
}

// Unique requires a value that is not in seen, and adds it.
func Unique[K comparable](f Field, name string, value K, seen Set[K]) {
	if !seen.Add(value) {
		f.Duplicate(name, value)
	}
}

// Union is a group of fields. At most one of them may be set.
type Union struct {
	path        Field
	extraDetail string
	set         int
}

// Union returns a new union. extraDetail is the message for every set field after the first; empty
// means that several fields may be set.
func (f Field) Union(extraDetail string) *Union { return &Union{path: f, extraDetail: extraDetail} }

// Count returns how many fields are set.
func (u *Union) Count() int { return u.set }

// Member adds a field to a union. Its rules apply if it is the first one that is set.
func Member[T any](union *Union, name string, value *T, rules func(Field, *T)) {
	if value == nil {
		return
	}
	union.set++
	if union.set > 1 && union.extraDetail != "" {
		union.path.Forbidden(name, union.extraDetail)
		return
	}
	rules(union.path.Child(name), value)
}

// AnyMember adds a field to a union, like Member, but its rules apply even if an earlier field is
// set.
func AnyMember[T any](union *Union, name string, value *T, rules func(Field, *T)) {
	if value != nil {
		union.set++
		rules(union.path.Child(name), value)
	}
}

// RequireMember records a missing field unless a field of the union is set.
func (u *Union) RequireMember(detail string) {
	if u.set == 0 {
		u.path.Required("", detail)
	}
}

// AllowFields rejects the set fields of a struct except those in allowed, by Go name.
func (f Field) AllowFields(value any, detail string, allowed ...string) {
	goValue := reflect.ValueOf(value)
	for i := range goValue.NumField() {
		name := goValue.Type().Field(i).Name
		if slices.Contains(allowed, name) || goValue.Field(i).IsZero() {
			continue
		}
		f.Forbidden(lowerFirst(name), detail)
	}
}

// lowerFirst returns s with its first letter in lower case: the JSON name of a Go field.
func lowerFirst(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	return string(unicode.ToLower(r)) + s[n:]
}
