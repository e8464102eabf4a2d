package apiextensions

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/crd/rules"
	"binnacle/services/apiserver/internal/crd/schema"
	"binnacle/services/apiserver/internal/crd/structural"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/registry/validate"
)

// schemaRules validates one schema of a definition.
type schemaRules struct {
	*checker
	tolerance
	structural bool   // must be structural
	status     bool   // the status subresource is enabled
	version    string // version of the schema; the first one if it belongs to all
}

// check validates the schema at a path. whole is the schema of the version in the definition
// itself.
func (r *schemaRules) check(at validate.At, v, whole *v1.CustomResourceValidation) {
	s := schemaOf(v)
	if s == nil {
		return
	}
	before := at.Found()
	if r.status {
		rootFields(at, s)
	}
	if s.Nullable {
		at.Forbidden("openAPIV3Schema.nullable", "nullable cannot be true at the root")
	}
	path := at.Child("openAPIV3Schema").Path()
	if r.structural {
		s = structural.Reduced(s)
	}
	unsupported := structural.Unsupported(s)
	shaped := r.structural && unsupported == nil
	if shaped {
		errs := r.shape(path, s)
		at.Add(errs...)
		shaped = len(errs) == 0
	}
	keywords := validate.CheckAt(path, func(at validate.At) { r.keywords(at, s, place{root: true}) })
	at.Add(keywords...)
	if shaped {
		at.Add(r.checker.check(rules.SchemaCheck{Schema: s, Path: path, KnownErrors: keywords, AllowExpensive: r.unchanged(r.version, whole)})...)
	}
	if r.structural && unsupported != nil && at.Found() == before {
		at.Invalid("openAPIV3Schema", "", unsupported.Error())
	}
}

// shape returns the violations of the rules for structural schemas. If there are none, it returns the
// errors of the default values.
func (r *schemaRules) shape(path *field.Path, s *v1.JSONSchemaProps) field.ErrorList {
	if errs := structural.Check(path, s); len(errs) > 0 {
		return errs
	}
	if !structural.Any(s, func(s *v1.JSONSchemaProps) bool { return s.Default != nil }) {
		return nil
	}
	ctx := context.Background()
	errs := schema.CheckDefaults(ctx, path, s, true, r.cel.CheckDefault)
	if len(errs) > 0 && r.unprunedDefaults() {
		errs = schema.CheckDefaults(ctx, path, s, false, r.cel.CheckDefault)
	}
	return errs
}

// allowedAtRoot holds the fields, by Go name, that a schema may have at its root if the status
// subresource is enabled.
var allowedAtRoot = []string{
	"Description", "Type", "Format", "Title", "Maximum", "ExclusiveMaximum", "Minimum", "ExclusiveMinimum", "MaxLength", "MinLength", "Pattern",
	"MaxItems", "MinItems", "UniqueItems", "MultipleOf", "Required", "Items", "Properties", "ExternalDocs", "Example", "XPreserveUnknownFields", "XValidations",
}

func rootFields(at validate.At, s *v1.JSONSchemaProps) {
	v := reflect.ValueOf(*s)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		switch {
		case v.Field(i).IsZero() || name == "Type" && s.Type == "object":
		case name == "Type":
			at.Invalid("openAPIV3Schema.type", s.Type, `only "object" is allowed as the type at the root of the schema if the status subresource is enabled`)
			return
		case !slices.Contains(allowedAtRoot, name):
			at.Invalid("openAPIV3Schema", *s,
				fmt.Sprintf("only %v fields are allowed at the root of the schema if the status subresource is enabled", allowedAtRoot))
			return
		}
	}
}

// place is the position of a schema inside a definition's schema.
type place struct {
	root bool
	// meta reports that it is inside the metadata, kind or apiVersion of a resource.
	meta bool
	// noDefault, if set, forbids defaults and describes the position.
	noDefault string
}

// properties validates the properties of a schema at p.
func (r *schemaRules) properties(at validate.At, s *v1.JSONSchemaProps, p, within place) {
	if len(s.Properties) == 0 {
		return
	}
	var f v1.JSONSchemaProps // reused: schemas are large
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		of := within
		if (p.root || s.XEmbeddedResource) && slices.Contains([]string{"metadata", "kind", "apiVersion"}, name) {
			of.meta = true
			if p.root {
				of.noDefault = "in top-level " + name
			}
		}
		f = s.Properties[name]
		r.keywords(at.Key("properties", name), &f, of)
	}
}

var types = []string{"array", "boolean", "integer", "number", "object", "string"}

// keywords validates a schema and the schemas inside it.
func (r *schemaRules) keywords(at validate.At, s *v1.JSONSchemaProps, p place) {
	r.unsupported(at, s, p)
	within := place{meta: p.meta, noDefault: p.noDefault}
	child := func(at validate.At, s *v1.JSONSchemaProps, p place) {
		if s != nil {
			r.keywords(at, s, p)
		}
	}
	if a := s.AdditionalProperties; a != nil {
		if len(s.Properties) > 0 && (!a.Allows || a.Schema != nil) {
			at.Forbidden("additionalProperties", "additionalProperties and properties are mutual exclusive")
		}
		of := within
		if p.meta {
			of.noDefault = "inside additionalProperties applying to object metadata"
		}
		child(at.Child("additionalProperties"), a.Schema, of)
	}
	r.properties(at, s, p, within)
	child(at.Child("not"), s.Not, within)
	each := func(at validate.At, s *v1.JSONSchemaProps) { r.keywords(at, s, within) }
	validate.Each(at, "allOf", s.AllOf, each)
	validate.Each(at, "oneOf", s.OneOf, each)
	validate.Each(at, "anyOf", s.AnyOf, each)
	validate.EachKey(at, "definitions", s.Definitions, func(at validate.At, _ string, s v1.JSONSchemaProps) { each(at, &s) })
	if s.Items != nil {
		child(at.Child("items"), s.Items.Schema, within)
		validate.Each(at, "items", s.Items.JSONSchemas, each)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Dependencies)) {
		child(at.Key("dependencies", name), s.Dependencies[name].Schema, within)
	}
	r.extensions(at, s)
	at.Add(rules.CheckSyntax(at.Path(), s)...)
}

// unsupported validates single keywords.
func (r *schemaRules) unsupported(at validate.At, s *v1.JSONSchemaProps, p place) {
	if s.Type != "" && !slices.Contains(types, s.Type) && !r.anyType() {
		validate.OneOf(at, "type", s.Type, types...)
	}
	if s.Default != nil && p.noDefault != "" {
		at.Forbidden("default", "must not be set "+p.noDefault)
	}
	at.Absent("id", s.ID != "", "id is not supported")
	at.Absent("additionalItems", s.AdditionalItems != nil, "additionalItems is not supported")
	at.Absent("patternProperties", len(s.PatternProperties) > 0, "patternProperties is not supported")
	at.Absent("definitions", len(s.Definitions) > 0, "definitions is not supported")
	at.Absent("dependencies", s.Dependencies != nil, "dependencies is not supported")
	at.Absent("$ref", s.Ref != nil, "$ref is not supported")
	at.Absent("type", s.Type == "null", "type cannot be set to null, use nullable as an alternative")
	at.Absent("items", s.Items != nil && len(s.Items.JSONSchemas) > 0, "items must be a schema object and not an array")
	at.Absent("x-kubernetes-embedded-resource", p.meta && s.XEmbeddedResource, "must not be used inside of resource meta")
	at.Absent("uniqueItems", s.UniqueItems, "uniqueItems cannot be set to true since the runtime complexity becomes quadratic")
}
