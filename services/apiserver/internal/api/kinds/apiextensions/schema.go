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
func (r *schemaRules) check(fld validate.Field, v, whole *v1.CustomResourceValidation) {
	schemaProps := schemaOf(v)
	if schemaProps == nil {
		return
	}
	before := fld.ErrorCount()
	if r.status {
		validateRootFields(fld, schemaProps)
	}
	if schemaProps.Nullable {
		fld.Forbidden("openAPIV3Schema.nullable", "nullable cannot be true at the root")
	}
	path := fld.Child("openAPIV3Schema").FieldPath()
	if r.structural {
		schemaProps = structural.Minimize(schemaProps)
	}
	unsupported := structural.Unsupported(schemaProps)
	normalized := r.structural && unsupported == nil
	if normalized {
		errs := r.checkStructure(path, schemaProps)
		fld.Add(errs...)
		normalized = len(errs) == 0
	}
	keywords := validate.CheckAt(path, func(fld validate.Field) { r.validateKeywords(fld, schemaProps, place{root: true}) })
	fld.Add(keywords...)
	if normalized {
		fld.Add(
			r.checker.check(
				rules.SchemaCheck{Schema: schemaProps, Path: path, KnownErrors: keywords, AllowExpensive: r.hasSameSchema(r.version, whole)},
			)...)
	}
	if r.structural && unsupported != nil && fld.ErrorCount() == before {
		fld.Invalid("openAPIV3Schema", "", unsupported.Error())
	}
}

// checkStructure returns the violations of the rules for structural schemas. If there are none, it
// returns the errors of the default values.
func (r *schemaRules) checkStructure(path *field.Path, schemaProps *v1.JSONSchemaProps) field.ErrorList {
	if errs := structural.Check(path, schemaProps); len(errs) > 0 {
		return errs
	}
	if !structural.AnySchema(schemaProps, func(schemaProps *v1.JSONSchemaProps) bool { return schemaProps.Default != nil }) {
		return nil
	}
	ctx := context.Background()
	errs := schema.CheckDefaults(ctx, path, schemaProps, true, r.cel.CheckDefault)
	if len(errs) > 0 && r.allowsUnprunedDefaults() {
		errs = schema.CheckDefaults(ctx, path, schemaProps, false, r.cel.CheckDefault)
	}
	return errs
}

// allowedAtRoot holds the fields, by Go name, that a schema may have at its root if the status
// subresource is enabled.
var allowedAtRoot = []string{
	"Description", "Type", "Format", "Title", "Maximum", "ExclusiveMaximum", "Minimum", "ExclusiveMinimum", "MaxLength",
	"MinLength", "Pattern",
	"MaxItems", "MinItems", "UniqueItems", "MultipleOf", "Required", "Items", "Properties", "ExternalDocs", "Example",
	"XPreserveUnknownFields", "XValidations",
}

// validateRootFields limits the fields at the root of a schema, because the status is written on
// its own.
func validateRootFields(fld validate.Field, schemaProps *v1.JSONSchemaProps) {
	value := reflect.ValueOf(*schemaProps)
	for i := range value.NumField() {
		name := value.Type().Field(i).Name
		switch {
		case value.Field(i).IsZero() || name == "Type" && schemaProps.Type == "object":
		case name == "Type":
			fld.Invalid("openAPIV3Schema.type", schemaProps.Type,
				`only "object" is allowed as the type at the root of the schema if the status subresource is enabled`)
			return
		case !slices.Contains(allowedAtRoot, name):
			fld.Invalid("openAPIV3Schema", *schemaProps,
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

// validateProperties validates the properties of a schema at position.
func (r *schemaRules) validateProperties(fld validate.Field, schemaProps *v1.JSONSchemaProps, position, within place) {
	if len(schemaProps.Properties) == 0 {
		return
	}
	var property v1.JSONSchemaProps // reused: schemas are large
	for _, name := range slices.Sorted(maps.Keys(schemaProps.Properties)) {
		of := within
		if (position.root || schemaProps.XEmbeddedResource) && slices.Contains([]string{"metadata", "kind", "apiVersion"}, name) {
			of.meta = true
			if position.root {
				of.noDefault = "in top-level " + name
			}
		}
		property = schemaProps.Properties[name]
		r.validateKeywords(fld.Key("properties", name), &property, of)
	}
}

var types = []string{"array", "boolean", "integer", "number", "object", "string"}

// validateKeywords validates a schema and the schemas inside it.
func (r *schemaRules) validateKeywords(fld validate.Field, schemaProps *v1.JSONSchemaProps, position place) {
	r.forbidUnsupported(fld, schemaProps, position)
	within := place{meta: position.meta, noDefault: position.noDefault}
	child := func(fld validate.Field, schemaProps *v1.JSONSchemaProps, position place) {
		if schemaProps != nil {
			r.validateKeywords(fld, schemaProps, position)
		}
	}
	if propsOrBool := schemaProps.AdditionalProperties; propsOrBool != nil {
		if len(schemaProps.Properties) > 0 && (!propsOrBool.Allows || propsOrBool.Schema != nil) {
			fld.Forbidden("additionalProperties", "additionalProperties and properties are mutual exclusive")
		}
		of := within
		if position.meta {
			of.noDefault = "inside additionalProperties applying to object metadata"
		}
		child(fld.Child("additionalProperties"), propsOrBool.Schema, of)
	}
	r.validateProperties(fld, schemaProps, position, within)
	child(fld.Child("not"), schemaProps.Not, within)
	each := func(fld validate.Field, schemaProps *v1.JSONSchemaProps) {
		r.validateKeywords(fld, schemaProps, within)
	}
	validate.Each(fld, "allOf", schemaProps.AllOf, each)
	validate.Each(fld, "oneOf", schemaProps.OneOf, each)
	validate.Each(fld, "anyOf", schemaProps.AnyOf, each)
	validate.EachKey(fld, "definitions", schemaProps.Definitions, func(fld validate.Field, _ string, schemaProps v1.JSONSchemaProps) { each(fld, &schemaProps) })
	if schemaProps.Items != nil {
		child(fld.Child("items"), schemaProps.Items.Schema, within)
		validate.Each(fld, "items", schemaProps.Items.JSONSchemas, each)
	}
	for _, name := range slices.Sorted(maps.Keys(schemaProps.Dependencies)) {
		child(fld.Key("dependencies", name), schemaProps.Dependencies[name].Schema, within)
	}
	r.validateExtensions(fld, schemaProps)
	fld.Add(rules.CheckSyntax(fld.FieldPath(), schemaProps)...)
}

// forbidUnsupported validates single keywords.
func (r *schemaRules) forbidUnsupported(fld validate.Field, schemaProps *v1.JSONSchemaProps, position place) {
	if schemaProps.Type != "" && !slices.Contains(types, schemaProps.Type) && !r.allowsUnknownTypes() {
		validate.OneOf(fld, "type", schemaProps.Type, types...)
	}
	if schemaProps.Default != nil && position.noDefault != "" {
		fld.Forbidden("default", "must not be set "+position.noDefault)
	}
	fld.ForbidSet("id", schemaProps.ID != "", "id is not supported")
	fld.ForbidSet("additionalItems", schemaProps.AdditionalItems != nil, "additionalItems is not supported")
	fld.ForbidSet("patternProperties", len(schemaProps.PatternProperties) > 0, "patternProperties is not supported")
	fld.ForbidSet("definitions", len(schemaProps.Definitions) > 0, "definitions is not supported")
	fld.ForbidSet("dependencies", schemaProps.Dependencies != nil, "dependencies is not supported")
	fld.ForbidSet("$ref", schemaProps.Ref != nil, "$ref is not supported")
	fld.ForbidSet("type", schemaProps.Type == "null", "type cannot be set to null, use nullable as an alternative")
	fld.ForbidSet("items", schemaProps.Items != nil && len(schemaProps.Items.JSONSchemas) > 0, "items must be a schema object and not an array")
	fld.ForbidSet("x-kubernetes-embedded-resource", position.meta && schemaProps.XEmbeddedResource, "must not be used inside of resource meta")
	fld.ForbidSet("uniqueItems", schemaProps.UniqueItems, "uniqueItems cannot be set to true since the runtime complexity becomes quadratic")
}
