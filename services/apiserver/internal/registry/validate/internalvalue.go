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
// such as core.Pod for v1.Pod. It returns content itself if no part of it has a type of the API.
func InternalValue(content any) any {
	value := reflect.ValueOf(content)
	if value.Kind() == reflect.Pointer && !value.IsNil() {
		value = value.Elem()
	}
	if value.Kind() != reflect.Struct && value.Kind() != reflect.Slice && value.Kind() != reflect.Map {
		return content
	}
	groups := map[string]string{}
	collectGroups(value.Type(), groups, map[reflect.Type]bool{})
	if len(groups) == 0 {
		return content
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
func collectGroups(goType reflect.Type, groups map[string]string, seen map[reflect.Type]bool) {
	if seen[goType] {
		return
	}
	seen[goType] = true
	group := path.Base(path.Dir(goType.PkgPath()))
	isAPI := goType.PkgPath() != "" && versionedType.MatchString(goType.String())
	if isAPI && group != "meta" { // types of metav1 have no internal name
		groups[goType.String()] = group
	}
	switch goType.Kind() {
	case reflect.Map:
		collectGroups(goType.Key(), groups, seen)
		collectGroups(goType.Elem(), groups, seen)
	case reflect.Pointer, reflect.Slice, reflect.Array:
		collectGroups(goType.Elem(), groups, seen)
	case reflect.Struct:
		for i := range goType.NumField() {
			collectGroups(goType.Field(i).Type, groups, seen)
		}
	}
}
