package structural

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp/syntax"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// Check returns the violations that keep a schema from being structural, sorted by message. at is
// the path of the schema, for which Unsupported must return nil.
func Check(at *field.Path, s *v1.JSONSchemaProps) field.ErrorList {
	if s == nil {
		return nil
	}
	c := &checker{}
	c.schema(at, s, root)
	c.complete(at, s)
	slices.SortFunc(c.errs, func(a, b *field.Error) int { return cmp.Compare(a.Error(), b.Error()) })
	return c.errs
}

// place is the kind of value that a schema describes.
type place int

const (
	root place = iota
	element
	property
)

// checker collects the errors of a schema.
type checker struct{ errs field.ErrorList }

func (c *checker) add(err *field.Error) { c.errs = append(c.errs, err) }

// schema checks a schema that defines the type of its value, and the schemas within it.
func (c *checker) schema(at *field.Path, s *v1.JSONSchemaProps, p place) {
	each := items(s)
	if s.Type == "array" && each == nil {
		c.add(field.Required(at.Child("items"), "must be specified"))
	}
	if each != nil {
		c.schema(at.Child("items"), each, element)
	}
	properties(s.Properties, func(name string, s *v1.JSONSchemaProps) {
		c.schema(at.Child("properties").Key(name), s, property)
	})
	if s.AdditionalProperties != nil {
		if p == root {
			c.add(field.Forbidden(at.Child("additionalProperties"), "must not be used at the root"))
		}
		if s.AdditionalProperties.Schema != nil {
			c.schema(at.Child("additionalProperties"), s.AdditionalProperties.Schema, property)
		}
	}
	c.values(at, s, isIntOrString(s.AnyOf), len(s.AllOf) > 0 && isIntOrString(s.AllOf[0].AnyOf))
	c.extensions(at, s)
	c.typed(at, s, p)
	c.head(at, s, p)
}

func preserves(s *v1.JSONSchemaProps) bool {
	return s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields
}

// extensions rejects contradictory extensions.
func (c *checker) extensions(at *field.Path, s *v1.JSONSchemaProps) {
	if s.XIntOrString && preserves(s) {
		c.add(field.Invalid(at.Child("x-kubernetes-preserve-unknown-fields"), true, "must be false if x-kubernetes-int-or-string is true"))
	}
	if s.XIntOrString && s.XEmbeddedResource {
		c.add(field.Invalid(at.Child("x-kubernetes-embedded-resource"), true, "must be false if x-kubernetes-int-or-string is true"))
	}
	if !s.XEmbeddedResource {
		return
	}
	if s.AdditionalProperties != nil {
		c.add(field.Forbidden(at.Child("additionalProperties"), "must not be used if x-kubernetes-embedded-resource is set"))
	}
	if !preserves(s) && len(s.Properties) == 0 {
		c.add(field.Required(at.Child("properties"), "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"))
	}
}

// typed requires a type.
func (c *checker) typed(at *field.Path, s *v1.JSONSchemaProps, p place) {
	const embedded = "must be object if x-kubernetes-embedded-resource is true"
	at = at.Child("type")
	switch {
	case s.XEmbeddedResource && s.Type == "":
		c.add(field.Required(at, embedded))
	case s.XEmbeddedResource && s.Type != "object":
		c.add(field.Invalid(at, s.Type, embedded))
	case s.Type == "" && !s.XIntOrString && !preserves(s):
		c.add(field.Required(at, map[place]string{
			root: "must not be empty at the root", element: "must not be empty for specified array items",
			property: "must not be empty for specified object fields",
		}[p]))
	}
	if p == root && s.Type != "" && s.Type != "object" {
		c.add(field.Invalid(at, s.Type, "must be object at the root"))
	}
}

// head checks a schema of the fields that every object has. It may define only their types and, at
// the root, the names.
func (c *checker) head(at *field.Path, s *v1.JSONSchemaProps, p place) {
	at = at.Child("properties")
	if p != root && !s.XEmbeddedResource {
		return
	}
	for _, name := range []string{"apiVersion", "kind"} {
		if f, ok := s.Properties[name]; ok && f.Type != "string" {
			c.add(field.Invalid(at.Key(name).Child("type"), f.Type, "must be string"))
		}
	}
	m, ok := s.Properties["metadata"]
	if !ok {
		return
	}
	if m.Type != "object" {
		c.add(field.Invalid(at.Key("metadata").Child("type"), m.Type, "must be object"))
	}
	if p == root && restrictsMetadata(m) {
		c.add(field.Forbidden(at.Key("metadata"), "must not specify anything other than name and generateName, but metadata is implicitly specified"))
	}
}

// restrictsMetadata reports whether a schema of metadata contains more than rules for names.
// Another check reports defaults.
func restrictsMetadata(m v1.JSONSchemaProps) bool {
	named := 0
	for _, name := range []string{"name", "generateName"} {
		if _, ok := m.Properties[name]; ok {
			named++
		}
	}
	if named == len(m.Properties) {
		m.Properties = nil
	}
	m.Ref = nil
	m.Type = ""
	m.Default = nil
	m.ExternalDocs = nil
	m.Example = nil
	return !reflect.DeepEqual(m, v1.JSONSchemaProps{})
}

// isIntOrString reports whether anyOf is the long form of x-kubernetes-int-or-string. Its
// alternatives may have types.
func isIntOrString(anyOf []v1.JSONSchemaProps) bool {
	if len(anyOf) != 2 {
		return false
	}
	for i, want := range []string{"integer", "string"} {
		s := anyOf[i]
		s.ExternalDocs = nil
		s.Example = nil
		if !reflect.DeepEqual(s, v1.JSONSchemaProps{Type: want}) {
			return false
		}
	}
	return true
}

// values checks the value rules and the logic of a schema. alternatives and firstAlternatives
// report isIntOrString for the schema itself and for its first allOf.
func (c *checker) values(at *field.Path, s *v1.JSONSchemaProps, alternatives, firstAlternatives bool) {
	logic(at, s, func(at *field.Path, keyword string, i int, s *v1.JSONSchemaProps) {
		if keyword == "anyOf" && alternatives {
			return
		}
		c.nested(at, s, keyword == "allOf" && i == 0 && firstAlternatives)
	})
	if s.Pattern == "" {
		return
	}
	if _, err := syntax.Parse(s.Pattern, syntax.Perl); err != nil {
		c.add(field.Invalid(at.Child("pattern"), s.Pattern, fmt.Sprintf("must be a valid regular expression, but isn't: %v", err)))
	}
}

// nested checks a schema below logic, which must not define types.
func (c *checker) nested(at *field.Path, s *v1.JSONSchemaProps, alternatives bool) {
	c.values(at, s, alternatives, false)
	if each := items(s); each != nil {
		c.nested(at.Child("items"), each, false)
	}
	properties(s.Properties, func(name string, s *v1.JSONSchemaProps) {
		c.nested(at.Child("properties").Key(name), s, false)
	})
	const empty, undefined, unset = "must be empty to be structural", "must be undefined to be structural", "must be false to be structural"
	for _, k := range []struct {
		name   string
		set    bool
		detail string
	}{
		{name: "type", set: s.Type != "", detail: empty},
		{name: "additionalProperties", set: s.AdditionalProperties != nil && s.AdditionalProperties.Allows, detail: undefined},
		{name: "default", set: s.Default != nil && len(s.Default.Raw) > 0, detail: undefined},
		{name: "title", set: s.Title != "", detail: empty},
		{name: "description", set: s.Description != "", detail: empty},
		{name: "nullable", set: s.Nullable, detail: unset},
		{name: "x-kubernetes-preserve-unknown-fields", set: preserves(s), detail: unset},
		{name: "x-kubernetes-embedded-resource", set: s.XEmbeddedResource, detail: unset},
		{name: "x-kubernetes-int-or-string", set: s.XIntOrString, detail: unset},
		{name: "x-kubernetes-list-map-keys", set: len(s.XListMapKeys) > 0, detail: empty},
		{name: "x-kubernetes-list-type", set: s.XListType != nil, detail: undefined},
		{name: "x-kubernetes-map-type", set: s.XMapType != nil, detail: undefined},
		{name: "x-kubernetes-validations", set: len(s.XValidations) > 0, detail: empty},
	} {
		if k.set {
			c.add(field.Forbidden(at.Child(k.name), k.detail))
		}
	}
	if _, ok := s.Properties["metadata"]; ok {
		c.add(field.Forbidden(at.Child("properties").Key("metadata"), "must not be specified in a nested context"))
	}
}

// complete requires that every field in the logic of the root is also defined outside of it.
func (c *checker) complete(at *field.Path, s *v1.JSONSchemaProps) { c.counterparts(at, at, s, s) }

// counterparts compares the logic of a schema with the schema that defines the types of the same
// values. there is the path of typed, here that of s.
func (c *checker) counterparts(there, here *field.Path, typed, s *v1.JSONSchemaProps) {
	logic(here, s, func(here *field.Path, _ string, _ int, s *v1.JSONSchemaProps) {
		c.counterpart(there, here, typed, s)
	})
}

// counterpart checks that a property within a logical junctor is also defined outside of it.
func (c *checker) counterpart(there, here *field.Path, typed, s *v1.JSONSchemaProps) {
	if typed == nil {
		c.add(field.Required(there, "because it is defined in "+here.String()))
		return
	}
	c.counterparts(there, here, typed, s)
	if each := items(s); each != nil {
		c.counterpart(there.Child("items"), here.Child("items"), items(typed), each)
	}
	properties(s.Properties, func(name string, s *v1.JSONSchemaProps) {
		there := there.Child("properties").Key(name)
		here := here.Child("properties").Key(name)
		if t, ok := typed.Properties[name]; ok {
			c.counterpart(there, here, &t, s)
			return
		}
		c.counterpart(there, here, nil, s)
	})
}
