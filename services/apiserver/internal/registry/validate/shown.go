package validate

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
)

// Shown is a value of an API type in the form of messages: Kubernetes shows values in the Go syntax
// of its internal types, whose package has the name of the group.
type Shown struct {
	Value any
	// Package is the package name, such as "core" or "apps".
	Package string
}

// versioned matches the names of types in a package with a version as name. Those of metav1 have
// such a name in messages as well.
var versioned = regexp.MustCompile(`\bv1(?:(?:alpha|beta)\d+)?\.\w+`)

// String formats the value only when a message is formatted.
func (s Shown) String() string { return InPackage(fmt.Sprintf("%#v", pointed(s.Value)), s.Package) }

// InPackage replaces the package of versioned Go types in a text by pkg.
func InPackage(text, pkg string) string {
	return versioned.ReplaceAllStringFunc(text, func(name string) string {
		if strings.HasPrefix(name, "v1.LabelSelector") {
			return name
		}
		return pkg + name[strings.IndexByte(name, '.'):]
	})
}

// pointed returns the value that a pointer points to.
func pointed(v any) any {
	if r := reflect.ValueOf(v); r.Kind() == reflect.Pointer && !r.IsNil() {
		return r.Elem().Interface()
	}
	return v
}
