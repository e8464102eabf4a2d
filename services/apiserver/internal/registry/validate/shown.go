package validate

import (
	"fmt"
	"path"
	"reflect"
	"regexp"
	"strings"
)

// versioned finds the names of types of a package that is called by a version.
var versioned = regexp.MustCompile(`\bv\d+(?:(?:alpha|beta)\d+)?\.\w+`)

// InPackage replaces the package of versioned Go types in a text by pkg.
func InPackage(text, pkg string) string {
	return versioned.ReplaceAllStringFunc(text, func(name string) string { return pkg + name[strings.IndexByte(name, '.'):] })
}

// Internal returns a value that messages show with the types of its own group, as Kubernetes'
// internal types are called, if it has types of the API. Other values are returned as they are.
func Internal(v any) any {
	r := reflect.ValueOf(v)
	if r.Kind() == reflect.Pointer && !r.IsNil() {
		r = r.Elem()
	}
	if r.Kind() != reflect.Struct && r.Kind() != reflect.Slice && r.Kind() != reflect.Map {
		return v
	}
	groups := map[string]string{}
	collect(r.Type(), groups, map[reflect.Type]bool{})
	if len(groups) == 0 {
		return v
	}
	return grouped{r.Interface(), groups}
}

// grouped is a value with the groups of its types, by their names in Go.
type grouped struct {
	value  any
	groups map[string]string
}

// String is made only when the message is.
func (g grouped) String() string {
	return versioned.ReplaceAllStringFunc(fmt.Sprintf("%#v", g.value), func(name string) string {
		if group, ok := g.groups[name]; ok {
			return group + name[strings.IndexByte(name, '.'):]
		}
		return name
	})
}

// collect adds the types of the API that a type has.
func collect(t reflect.Type, groups map[string]string, seen map[reflect.Type]bool) {
	if seen[t] {
		return
	}
	seen[t] = true
	// Types of metav1 have no other name.
	if group := path.Base(path.Dir(t.PkgPath())); t.PkgPath() != "" && group != "meta" && versioned.MatchString(t.String()) {
		groups[t.String()] = group
	}
	switch t.Kind() {
	case reflect.Map:
		collect(t.Key(), groups, seen)
		collect(t.Elem(), groups, seen)
	case reflect.Pointer, reflect.Slice, reflect.Array:
		collect(t.Elem(), groups, seen)
	case reflect.Struct:
		for i := range t.NumField() {
			collect(t.Field(i).Type, groups, seen)
		}
	}
}
