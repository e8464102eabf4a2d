package validate

import (
	"fmt"
	"path"
	"reflect"
	"regexp"
	"strings"
)

// versionedType matches the name of a type in a package that is named after a version, such as
// v1.Pod.
var versionedType = regexp.MustCompile(`\bv\d+(?:(?:alpha|beta)\d+)?\.\w+`)

// InPackage replaces the package of versioned Go types in a text by pkg.
func InPackage(text, pkg string) string {
	return versionedType.ReplaceAllStringFunc(text, func(name string) string { return pkg + name[strings.IndexByte(name, '.'):] })
}

// InternalValue returns a value whose text in messages has the names of Kubernetes' internal types,
// such as core.Pod for v1.Pod. It returns v itself if no part of v has a type of the API.
func InternalValue(v any) any {
	value := reflect.ValueOf(v)
	if value.Kind() == reflect.Pointer && !value.IsNil() {
		value = value.Elem()
	}
	if value.Kind() != reflect.Struct && value.Kind() != reflect.Slice && value.Kind() != reflect.Map {
		return v
	}
	groups := map[string]string{}
	collectGroups(value.Type(), groups, map[reflect.Type]bool{})
	if len(groups) == 0 {
		return v
	}
	return internalText{value.Interface(), groups}
}

// internalText is a value whose text has the names of internal types. The text is formatted only if
// the message is.
type internalText struct {
	value any
	// groups holds the group of each type by the type's name in Go.
	groups map[string]string
}

// String formats the value as %#v does, with groups in place of versions.
func (g internalText) String() string {
	return versionedType.ReplaceAllStringFunc(fmt.Sprintf("%#v", g.value), func(name string) string {
		if group, ok := g.groups[name]; ok {
			return group + name[strings.IndexByte(name, '.'):]
		}
		return name
	})
}

// collectGroups adds the groups of all API types that occur in a type.
func collectGroups(t reflect.Type, groups map[string]string, seen map[reflect.Type]bool) {
	if seen[t] {
		return
	}
	seen[t] = true
	group := path.Base(path.Dir(t.PkgPath()))
	isAPI := t.PkgPath() != "" && versionedType.MatchString(t.String())
	if isAPI && group != "meta" { // types of metav1 have no internal name
		groups[t.String()] = group
	}
	switch t.Kind() {
	case reflect.Map:
		collectGroups(t.Key(), groups, seen)
		collectGroups(t.Elem(), groups, seen)
	case reflect.Pointer, reflect.Slice, reflect.Array:
		collectGroups(t.Elem(), groups, seen)
	case reflect.Struct:
		for i := range t.NumField() {
			collectGroups(t.Field(i).Type, groups, seen)
		}
	}
}
