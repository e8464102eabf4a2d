package structural

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp/syntax"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/libs/regexcost"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// Check returns the violations that keep a schema from being structural, sorted by message. path
// is the path of the schema. Unsupported must return nil for the schema.
func Check(path *field.Path, props *v1.JSONSchemaProps) field.ErrorList {
	if props == nil {
		return nil
	}
	c := &checker{}
	c.checkSchema(path, props, root)
	c.requireCounterparts(path, path, props, props)
	slices.SortFunc(c.errs, func(a, b *field.Error) int { return cmp.Compare(a.Error(), b.Error()) })
	return c.errs
}

// position is where a schema stands: at the root, or as the schema of list elements or of a
// property.
type position int

const (
	root position = iota
	element
	property
)

// checker collects the errors of a schema.
type checker struct{ errs field.ErrorList }

func (c *checker) add(err *field.Error) { c.errs = append(c.errs, err) }

// checkSchema checks a schema that defines the type of its value, and the schemas within it.
func (c *checker) checkSchema(path *field.Path, schemaProps *v1.JSONSchemaProps, pos position) {
	elements := items(schemaProps)
	if schemaProps.Type == "array" && elements == nil {
		c.add(field.Required(path.Child("items"), "must be specified"))
	}
	if elements != nil {
		c.checkSchema(path.Child("items"), elements, element)
	}
	forEachProperty(schemaProps.Properties, func(name string, schemaProps *v1.JSONSchemaProps) {
		c.checkSchema(path.Child("properties").Key(name), schemaProps, property)
	})
	if schemaProps.AdditionalProperties != nil {
		if pos == root {
			c.add(field.Forbidden(path.Child("additionalProperties"), "must not be used at the root"))
		}
		if schemaProps.AdditionalProperties.Schema != nil {
			c.checkSchema(path.Child("additionalProperties"), schemaProps.AdditionalProperties.Schema, property)
		}
	}
	firstAllOfIsIntOrString := len(schemaProps.AllOf) > 0 && isIntOrString(schemaProps.AllOf[0].AnyOf)
	c.checkValueRules(path, schemaProps, isIntOrString(schemaProps.AnyOf), firstAllOfIsIntOrString)
	c.checkExtensions(path, schemaProps)
	c.checkType(path, schemaProps, pos)
	c.checkObjectFields(path, schemaProps, pos)
}

// preserves reports whether a schema sets x-kubernetes-preserve-unknown-fields.
func preserves(s *v1.JSONSchemaProps) bool {
	return s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields
}

// checkExtensions rejects contradictory extensions.
func (c *checker) checkExtensions(path *field.Path, schemaProps *v1.JSONSchemaProps) {
	if schemaProps.XIntOrString && preserves(schemaProps) {
		c.add(field.Invalid(path.Child("x-kubernetes-preserve-unknown-fields"), true,
			"must be false if x-kubernetes-int-or-string is true"))
	}
	if schemaProps.XIntOrString && schemaProps.XEmbeddedResource {
		c.add(field.Invalid(path.Child("x-kubernetes-embedded-resource"), true,
			"must be false if x-kubernetes-int-or-string is true"))
	}
	if !schemaProps.XEmbeddedResource {
		return
	}
	if schemaProps.AdditionalProperties != nil {
		c.add(field.Forbidden(path.Child("additionalProperties"), "must not be used if x-kubernetes-embedded-resource is set"))
	}
	if !preserves(schemaProps) && len(schemaProps.Properties) == 0 {
		c.add(field.Required(path.Child("properties"),
			"must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"))
	}
}

// checkType requires a type.
func (c *checker) checkType(path *field.Path, schemaProps *v1.JSONSchemaProps, pos position) {
	const embedded = "must be object if x-kubernetes-embedded-resource is true"
	path = path.Child("type")
	switch {
	case schemaProps.XEmbeddedResource && schemaProps.Type == "":
		c.add(field.Required(path, embedded))
	case schemaProps.XEmbeddedResource && schemaProps.Type != "object":
		c.add(field.Invalid(path, schemaProps.Type, embedded))
	case schemaProps.Type == "" && !schemaProps.XIntOrString && !preserves(schemaProps):
		c.add(field.Required(path, map[position]string{
			root:     "must not be empty at the root",
			element:  "must not be empty for specified array items",
			property: "must not be empty for specified object fields",
		}[pos]))
	}
	if pos == root && schemaProps.Type != "" && schemaProps.Type != "object" {
		c.add(field.Invalid(path, schemaProps.Type, "must be object at the root"))
	}
}

// checkObjectFields checks the schemas of apiVersion, kind and metadata, which every object has.
// They may define only the types of these fields and, at the root, restrict the names.
func (c *checker) checkObjectFields(path *field.Path, props *v1.JSONSchemaProps, pos position) {
	path = path.Child("properties")
	if pos != root && !props.XEmbeddedResource {
		return
	}
	for _, name := range []string{"apiVersion", "kind"} {
		if f, ok := props.Properties[name]; ok && f.Type != "string" {
			c.add(field.Invalid(path.Key(name).Child("type"), f.Type, "must be string"))
		}
	}
	member, ok := props.Properties["metadata"]
	if !ok {
		return
	}
	if member.Type != "object" {
		c.add(field.Invalid(path.Key("metadata").Child("type"), member.Type, "must be object"))
	}
	if pos == root && restrictsMetadata(member) {
		c.add(field.Forbidden(path.Key("metadata"),
			"must not specify anything other than name and generateName, but metadata is implicitly specified"))
	}
}

// restrictsMetadata reports whether a schema of metadata contains more than rules for names. It
// ignores defaults, for which the validation of definitions returns an error of its own.
func restrictsMetadata(schemaProps v1.JSONSchemaProps) bool {
	nameSchemas := 0
	for _, name := range []string{"name", "generateName"} {
		if _, ok := schemaProps.Properties[name]; ok {
			nameSchemas++
		}
	}
	if nameSchemas == len(schemaProps.Properties) {
		schemaProps.Properties = nil
	}
	schemaProps.Ref = nil
	schemaProps.Type = ""
	schemaProps.Default = nil
	schemaProps.ExternalDocs = nil
	schemaProps.Example = nil
	return !reflect.DeepEqual(schemaProps, v1.JSONSchemaProps{})
}

// isIntOrString reports whether anyOf is the long form of x-kubernetes-int-or-string: an
// integer or a string. Only its alternatives may have types.
func isIntOrString(anyOf []v1.JSONSchemaProps) bool {
	if len(anyOf) != 2 {
		return false
	}
	for i, expected := range []string{"integer", "string"} {
		props := anyOf[i]
		props.ExternalDocs = nil
		props.Example = nil
		if !reflect.DeepEqual(props, v1.JSONSchemaProps{Type: expected}) {
			return false
		}
	}
	return true
}

// checkValueRules checks the pattern of a schema and the schemas in its junctors (allOf, anyOf,
// oneOf, not). anyOfIsIntOrString and firstAllOfIsIntOrString are the results of isIntOrString for
// the anyOf of the schema and for that of its first allOf. Such an anyOf may define types.
func (c *checker) checkValueRules(path *field.Path, schemaProps *v1.JSONSchemaProps, anyOfIsIntOrString, firstAllOfIsIntOrString bool) {
	forEachJunctor(path, schemaProps, func(path *field.Path, keyword string, i int, schemaProps *v1.JSONSchemaProps) {
		if keyword == "anyOf" && anyOfIsIntOrString {
			return
		}
		c.checkJunctorSchema(path, schemaProps, keyword == "allOf" && i == 0 && firstAllOfIsIntOrString)
	})
	if schemaProps.Pattern == "" {
		return
	}
	if err := checkPattern(schemaProps.Pattern); err != nil {
		c.add(field.Invalid(path.Child("pattern"), schemaProps.Pattern, fmt.Sprintf("must be a valid regular expression, but isn't: %v", err)))
	}
}

// checkPattern returns the error of an invalid pattern. It accepts a pattern that is expensive to
// parse. If that is invalid, the objects are rejected.
func checkPattern(pattern string) error {
	if regexcost.ParseSteps(pattern) > regexcost.Cheap {
		return nil
	}
	_, err := syntax.Parse(pattern, syntax.Perl) // finds every error of compiling it, in a tenth of the time
	return err
}

// checkJunctorSchema checks a schema within a junctor, which must not define types.
// anyOfIsIntOrString is the result of isIntOrString for its anyOf.
func (c *checker) checkJunctorSchema(path *field.Path, schemaProps *v1.JSONSchemaProps, anyOfIsIntOrString bool) {
	// An anyOf further down may not define types.
	const neverIntOrString = false
	c.checkValueRules(path, schemaProps, anyOfIsIntOrString, neverIntOrString)
	if elements := items(schemaProps); elements != nil {
		c.checkJunctorSchema(path.Child("items"), elements, neverIntOrString)
	}
	forEachProperty(schemaProps.Properties, func(name string, schemaProps *v1.JSONSchemaProps) {
		c.checkJunctorSchema(path.Child("properties").Key(name), schemaProps, neverIntOrString)
	})
	const empty = "must be empty to be structural"
	const undefined = "must be undefined to be structural"
	const unset = "must be false to be structural"
	for _, keyword := range []struct {
		name   string
		set    bool
		detail string
	}{
		{name: "type", set: schemaProps.Type != "", detail: empty},
		{name: "additionalProperties", set: schemaProps.AdditionalProperties != nil && schemaProps.AdditionalProperties.Allows, detail: undefined},
		{name: "default", set: schemaProps.Default != nil && len(schemaProps.Default.Raw) > 0, detail: undefined},
		{name: "title", set: schemaProps.Title != "", detail: empty},
		{name: "description", set: schemaProps.Description != "", detail: empty},
		{name: "nullable", set: schemaProps.Nullable, detail: unset},
		{name: "x-kubernetes-preserve-unknown-fields", set: preserves(schemaProps), detail: unset},
		{name: "x-kubernetes-embedded-resource", set: schemaProps.XEmbeddedResource, detail: unset},
		{name: "x-kubernetes-int-or-string", set: schemaProps.XIntOrString, detail: unset},
		{name: "x-kubernetes-list-map-keys", set: len(schemaProps.XListMapKeys) > 0, detail: empty},
		{name: "x-kubernetes-list-type", set: schemaProps.XListType != nil, detail: undefined},
		{name: "x-kubernetes-map-type", set: schemaProps.XMapType != nil, detail: undefined},
		{name: "x-kubernetes-validations", set: len(schemaProps.XValidations) > 0, detail: empty},
	} {
		if keyword.set {
			c.add(field.Forbidden(path.Child(keyword.name), keyword.detail))
		}
	}
	if _, ok := schemaProps.Properties["metadata"]; ok {
		c.add(field.Forbidden(path.Child("properties").Key("metadata"), "must not be specified in a nested context"))
	}
}

// requireCounterparts requires that typed defines every field that the junctors of s restrict.
// typed is the schema that defines the types of the same values. typedPath is its path, path that
// of s.
func (c *checker) requireCounterparts(typedPath, path *field.Path, typed, s *v1.JSONSchemaProps) {
	forEachJunctor(path, s, func(path *field.Path, _ string, _ int, s *v1.JSONSchemaProps) {
		c.requireCounterpart(typedPath, path, typed, s)
	})
}

// requireCounterpart requires that typed, which may be nil, defines the fields of props, a schema
// within a junctor.
func (c *checker) requireCounterpart(typedPath, path *field.Path, typed, props *v1.JSONSchemaProps) {
	if typed == nil {
		c.add(field.Required(typedPath, "because it is defined in "+path.String()))
		return
	}
	c.requireCounterparts(typedPath, path, typed, props)
	if elements := items(props); elements != nil {
		c.requireCounterpart(typedPath.Child("items"), path.Child("items"), items(typed), elements)
	}
	forEachProperty(props.Properties, func(name string, props *v1.JSONSchemaProps) {
		var counterpart *v1.JSONSchemaProps
		if t, ok := typed.Properties[name]; ok {
			counterpart = &t
		}
		c.requireCounterpart(typedPath.Child("properties").Key(name), path.Child("properties").Key(name), counterpart, props)
	})
}
