package structural

import (
	"regexp/syntax"

	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// Minimize returns the schema of a version without the properties that are certainly valid, which
// are most of them. Checking the reduced schema returns the same errors, in the same order, as
// checking s, and takes less time. A schema that has junctors, x-kubernetes-validations or other
// keywords that refer to its contents keeps all of them. The result shares memory with s.
func Minimize(s *v1.JSONSchemaProps) *v1.JSONSchemaProps {
	if s == nil {
		return nil
	}
	m := minimizer{patterns: map[string]bool{}}
	if s.Type != "object" || s.AdditionalProperties != nil || s.Nullable || !m.isSimple(s) {
		return s
	}
	return m.reduce(s, true)
}

// minimizer caches which patterns are valid regular expressions.
type minimizer struct{ patterns map[string]bool }

// reduce returns a simple schema without the properties that isSimpleTree accepts. root states that
// the schema is that of the whole object.
func (m *minimizer) reduce(s *v1.JSONSchemaProps, root bool) *v1.JSONSchemaProps {
	out := *s
	out.Properties = nil
	var p v1.JSONSchemaProps // reused, because schemas are large
	for name := range s.Properties {
		p = s.Properties[name]
		objectField := root && (name == "metadata" || name == "kind" || name == "apiVersion")
		if !objectField && m.isSimpleTree(&p) {
			continue
		}
		if out.Properties == nil {
			out.Properties = map[string]v1.JSONSchemaProps{}
		}
		if !objectField && p.Items == nil && p.AdditionalProperties == nil && m.isSimple(&p) {
			p = *m.reduce(&p, false)
		}
		out.Properties[name] = p
	}
	return &out
}

// isSimpleTree reports whether a schema and all schemas within it are simple. Such a schema is
// valid for any property.
func (m *minimizer) isSimpleTree(s *v1.JSONSchemaProps) bool {
	if !m.isSimple(s) {
		return false
	}
	if s.Items != nil && !m.isSimpleTree(s.Items.Schema) {
		return false
	}
	if a := s.AdditionalProperties; a != nil {
		if len(s.Properties) > 0 || a.Schema != nil && !m.isSimpleTree(a.Schema) {
			return false
		}
	}
	if len(s.Properties) == 0 {
		return true
	}
	var p v1.JSONSchemaProps
	for name := range s.Properties {
		p = s.Properties[name]
		if !m.isSimpleTree(&p) {
			return false
		}
	}
	return true
}

// isSimple reports whether a schema is valid if the schemas within it are, and does not refer to
// them.
func (m *minimizer) isSimple(s *v1.JSONSchemaProps) bool {
	switch s.Type {
	case "object", "string", "integer", "number", "boolean":
	case "array":
		if s.Items == nil {
			return false
		}
	default:
		return false
	}
	switch {
	// Keywords that refer to the contents of the schema.
	case s.AllOf != nil, s.AnyOf != nil, s.OneOf != nil, s.Not != nil, s.XValidations != nil, s.Default != nil,
		s.XEmbeddedResource, s.XIntOrString, s.XListMapKeys != nil:
		return false
	// Keywords that no definition may have.
	case s.ID != "", s.Schema != "", s.Ref != nil, s.PatternProperties != nil, s.Dependencies != nil,
		s.AdditionalItems != nil, s.Definitions != nil, s.UniqueItems:
		return false
	// Keywords with values that are invalid, or valid for other types only.
	case s.Items != nil && (s.Items.Schema == nil || s.Items.JSONSchemas != nil),
		s.XPreserveUnknownFields != nil && !*s.XPreserveUnknownFields,
		s.XListType != nil && (s.Type != "array" || *s.XListType != "atomic"),
		s.XMapType != nil && (s.Type != "object" || *s.XMapType != "atomic" && *s.XMapType != "granular"):
		return false
	}
	return s.Pattern == "" || m.isValidPattern(s.Pattern)
}

// isValidPattern reports whether a pattern is valid. Results are cached.
func (m *minimizer) isValidPattern(pattern string) bool {
	ok, known := m.patterns[pattern]
	if !known {
		_, err := syntax.Parse(pattern, syntax.Perl)
		ok = err == nil
		m.patterns[pattern] = ok
	}
	return ok
}
