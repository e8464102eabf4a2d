package structural

import (
	"regexp/syntax"

	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// Reduced returns a version's schema without the properties in which no rule of definitions can
// find an error, which are most of them. The reduced schema has the same errors as the whole
// schema, in the same order. Nothing is left out below a schema with logic, rules of its own or
// anything else that refers to its contents. The result shares memory with the schema.
func Reduced(s *v1.JSONSchemaProps) *v1.JSONSchemaProps {
	if s == nil {
		return nil
	}
	r := reducer{patterns: map[string]bool{}}
	if s.Type != "object" || s.AdditionalProperties != nil || s.Nullable || !r.isQuiet(s) {
		return s
	}
	return r.reduce(s, true)
}

// reducer caches which patterns are valid regular expressions.
type reducer struct{ patterns map[string]bool }

// reduce returns a quiet schema without its plain properties.
func (r *reducer) reduce(s *v1.JSONSchemaProps, root bool) *v1.JSONSchemaProps {
	out := *s
	out.Properties = nil
	var p v1.JSONSchemaProps // reused, because schemas are large
	for name := range s.Properties {
		p = s.Properties[name]
		head := root && (name == "metadata" || name == "kind" || name == "apiVersion")
		if !head && r.plain(&p) {
			continue
		}
		if out.Properties == nil {
			out.Properties = map[string]v1.JSONSchemaProps{}
		}
		if !head && p.Items == nil && p.AdditionalProperties == nil && r.isQuiet(&p) {
			p = *r.reduce(&p, false)
		}
		out.Properties[name] = p
	}
	return &out
}

// plain reports whether a schema and everything within it is valid wherever it is used below the
// root.
func (r *reducer) plain(s *v1.JSONSchemaProps) bool {
	if !r.isQuiet(s) {
		return false
	}
	if s.Items != nil && !r.plain(s.Items.Schema) {
		return false
	}
	if a := s.AdditionalProperties; a != nil && (len(s.Properties) > 0 || a.Schema != nil && !r.plain(a.Schema)) {
		return false
	}
	if len(s.Properties) == 0 {
		return true
	}
	var p v1.JSONSchemaProps
	for name := range s.Properties {
		p = s.Properties[name]
		if !r.plain(&p) {
			return false
		}
	}
	return true
}

// isQuiet reports whether a schema is valid apart from the schemas within it, and does not refer to
// them.
func (r *reducer) isQuiet(s *v1.JSONSchemaProps) bool {
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
	case s.AllOf != nil, s.AnyOf != nil, s.OneOf != nil, s.Not != nil, s.XValidations != nil, s.Default != nil,
		s.ID != "", s.Schema != "", s.Ref != nil, s.PatternProperties != nil, s.Dependencies != nil, s.AdditionalItems != nil, s.Definitions != nil, s.UniqueItems,
		s.XEmbeddedResource, s.XIntOrString, s.XListMapKeys != nil,
		s.Items != nil && (s.Items.Schema == nil || s.Items.JSONSchemas != nil),
		s.XPreserveUnknownFields != nil && !*s.XPreserveUnknownFields,
		s.XListType != nil && (s.Type != "array" || *s.XListType != "atomic"),
		s.XMapType != nil && (s.Type != "object" || *s.XMapType != "atomic" && *s.XMapType != "granular"):
		return false
	}
	return s.Pattern == "" || r.compiles(s.Pattern)
}

// compiles reports whether a pattern is valid. Results are cached.
func (r *reducer) compiles(pattern string) bool {
	ok, known := r.patterns[pattern]
	if !known {
		_, err := syntax.Parse(pattern, syntax.Perl) // covers all errors of compiling the pattern, which takes ten times as long
		ok = err == nil
		r.patterns[pattern] = ok
	}
	return ok
}
