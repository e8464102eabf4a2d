package validate

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
)

// Shown is a value of an API type as messages show it: Kubernetes tells values
// in the Go syntax of its own types, whose package is named by the group.
type Shown struct {
	Value any
	// Package is "core" or "apps".
	Package string
}

// versioned finds the names of types of a package that is called by a version;
// those of metav1 are called so in messages as well.
var versioned = regexp.MustCompile(`\bv1(?:(?:alpha|beta)\d+)?\.\w+`)

// String is made only when the message is.
func (s Shown) String() string { return InPackage(fmt.Sprintf("%#v", pointed(s.Value)), s.Package) }

// InPackage returns a text in which Go types of a version are those of a package.
func InPackage(text, pkg string) string {
	return versioned.ReplaceAllStringFunc(text, func(name string) string {
		if strings.HasPrefix(name, "v1.LabelSelector") {
			return name
		}
		return pkg + name[strings.IndexByte(name, '.'):]
	})
}

// pointed is what a pointer points to.
func pointed(v any) any {
	if r := reflect.ValueOf(v); r.Kind() == reflect.Pointer && !r.IsNil() {
		return r.Elem().Interface()
	}
	return v
}
