package structural

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// AnySchema reports whether has returns true for schemaProps or for any schema within it.
func AnySchema(schemaProps *v1.JSONSchemaProps, has func(*v1.JSONSchemaProps) bool) bool {
	if schemaProps == nil {
		return false
	}
	if has(schemaProps) {
		return true
	}
	within := func(schemaProps *v1.JSONSchemaProps) bool { return AnySchema(schemaProps, has) }
	if schemaProps.Items != nil && (within(schemaProps.Items.Schema) || anySchemaIn(schemaProps.Items.JSONSchemas, has)) {
		return true
	}
	if anySchemaIn(schemaProps.AllOf, has) || anySchemaIn(schemaProps.AnyOf, has) || anySchemaIn(schemaProps.OneOf, has) || within(schemaProps.Not) {
		return true
	}
	for _, named := range []map[string]v1.JSONSchemaProps{schemaProps.Properties, schemaProps.PatternProperties, schemaProps.Definitions} {
		if len(named) == 0 {
			continue
		}
		var child v1.JSONSchemaProps // reused, because schemas are large
		for _, child = range named {
			if within(&child) {
				return true
			}
		}
	}
	for _, d := range schemaProps.Dependencies {
		if within(d.Schema) {
			return true
		}
	}
	for _, additional := range []*v1.JSONSchemaPropsOrBool{schemaProps.AdditionalProperties, schemaProps.AdditionalItems} {
		if additional != nil && within(additional.Schema) {
			return true
		}
	}
	return false
}

// anySchemaIn reports whether AnySchema is true for any schema of a list.
func anySchemaIn(list []v1.JSONSchemaProps, has func(*v1.JSONSchemaProps) bool) bool {
	for i := range list {
		if AnySchema(&list[i], has) {
			return true
		}
	}
	return false
}

// forEachProperty calls visit for properties in the order of their names. The schema is valid only
// during the call.
func forEachProperty(named map[string]v1.JSONSchemaProps, visit func(name string, s *v1.JSONSchemaProps)) {
	if len(named) == 0 {
		return
	}
	var s v1.JSONSchemaProps
	for _, name := range slices.Sorted(maps.Keys(named)) {
		s = named[name]
		visit(name, &s)
	}
}

// items returns the schema of a list's elements, or nil.
func items(props *v1.JSONSchemaProps) *v1.JSONSchemaProps {
	if props.Items == nil {
		return nil
	}
	return props.Items.Schema
}

// forEachJunctor calls visit for the schemas in anyOf, allOf, oneOf and not, which restrict a value
// without defining its type.
func forEachJunctor(
	path *field.Path,
	schemaProps *v1.JSONSchemaProps,
	visit func(path *field.Path, keyword string, i int, schemaProps *v1.JSONSchemaProps),
) {
	visitAll := func(keyword string, list []v1.JSONSchemaProps) {
		for i := range list {
			visit(path.Child(keyword).Index(i), keyword, i, &list[i])
		}
	}
	visitAll("anyOf", schemaProps.AnyOf)
	visitAll("allOf", schemaProps.AllOf)
	visitAll("oneOf", schemaProps.OneOf)
	if schemaProps.Not != nil {
		visit(path.Child("not"), "not", 0, schemaProps.Not)
	}
}
