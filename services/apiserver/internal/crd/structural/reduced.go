package structural

import (
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// Minimize returns the schema of a version without the properties that are certainly valid, which
// are most of them. Checking the reduced schema returns the same errors, in the same order, as
// checking props, and takes less time. A schema that has junctors, x-kubernetes-validations or other
// keywords that refer to its contents keeps all of them. The result shares memory with props.
func Minimize(props *v1.JSONSchemaProps) *v1.JSONSchemaProps {
	if props == nil {
		return nil
	}
	m := minimizer{patterns: map[string]bool{}}
	if props.Type != "object" || props.AdditionalProperties != nil || props.Nullable || !m.isSimple(props) {
		return props
	}
	return m.reduce(props, true)
}

// minimizer caches which patterns are valid regular expressions.
type minimizer struct{ patterns map[string]bool }

// reduce returns a simple schema without the properties that isSimpleTree accepts. root states that
// the schema is that of the whole object.
func (m *minimizer) reduce(props *v1.JSONSchemaProps, root bool) *v1.JSONSchemaProps {
	out := *props
	out.Properties = nil
	var schemaProps v1.JSONSchemaProps // reused, because schemas are large
	for name := range props.Properties {
		schemaProps = props.Properties[name]
		objectField := root && (name == "metadata" || name == "kind" || name == "apiVersion")
		if !objectField && m.isSimpleTree(&schemaProps) {
			continue
		}
		if out.Properties == nil {
			out.Properties = map[string]v1.JSONSchemaProps{}
		}
		if !objectField && schemaProps.Items == nil && schemaProps.AdditionalProperties == nil && m.isSimple(&schemaProps) {
			schemaProps = *m.reduce(&schemaProps, false)
		}
		out.Properties[name] = schemaProps
	}
	return &out
}

// isSimpleTree reports whether a schema and all schemas within it are simple. Such a schema is
// valid for any property.
func (m *minimizer) isSimpleTree(schemaProps *v1.JSONSchemaProps) bool {
	if !m.isSimple(schemaProps) {
		return false
	}
	if schemaProps.Items != nil && !m.isSimpleTree(schemaProps.Items.Schema) {
		return false
	}
	if a := schemaProps.AdditionalProperties; a != nil {
		if len(schemaProps.Properties) > 0 || a.Schema != nil && !m.isSimpleTree(a.Schema) {
			return false
		}
	}
	if len(schemaProps.Properties) == 0 {
		return true
	}
	var p v1.JSONSchemaProps
	for name := range schemaProps.Properties {
		p = schemaProps.Properties[name]
		if !m.isSimpleTree(&p) {
			return false
		}
	}
	return true
}

// isSimple reports whether a schema is valid if the schemas within it are, and does not refer to
// them.
func (m *minimizer) isSimple(schemaProps *v1.JSONSchemaProps) bool {
	switch schemaProps.Type {
	case "object", "string", "integer", "number", "boolean":
	case "array":
		if schemaProps.Items == nil {
			return false
		}
	default:
		return false
	}
	switch {
	// Keywords that refer to the contents of the schema.
	case schemaProps.AllOf != nil, schemaProps.AnyOf != nil, schemaProps.OneOf != nil, schemaProps.Not != nil, schemaProps.XValidations != nil, schemaProps.Default != nil,
		schemaProps.XEmbeddedResource, schemaProps.XIntOrString, schemaProps.XListMapKeys != nil:
		return false
	// Keywords that no definition may have.
	case schemaProps.ID != "", schemaProps.Schema != "", schemaProps.Ref != nil, schemaProps.PatternProperties != nil, schemaProps.Dependencies != nil,
		schemaProps.AdditionalItems != nil, schemaProps.Definitions != nil, schemaProps.UniqueItems:
		return false
	// Keywords with values that are invalid, or valid for other types only.
	case schemaProps.Items != nil && (schemaProps.Items.Schema == nil || schemaProps.Items.JSONSchemas != nil),
		schemaProps.XPreserveUnknownFields != nil && !*schemaProps.XPreserveUnknownFields,
		schemaProps.XListType != nil && (schemaProps.Type != "array" || *schemaProps.XListType != "atomic"),
		schemaProps.XMapType != nil && (schemaProps.Type != "object" || *schemaProps.XMapType != "atomic" && *schemaProps.XMapType != "granular"):
		return false
	}
	return schemaProps.Pattern == "" || m.isValidPattern(schemaProps.Pattern)
}

// isValidPattern reports whether a pattern is valid. Results are cached.
func (m *minimizer) isValidPattern(pattern string) bool {
	ok, known := m.patterns[pattern]
	if !known {
		ok = checkPattern(pattern) == nil
		m.patterns[pattern] = ok
	}
	return ok
}
