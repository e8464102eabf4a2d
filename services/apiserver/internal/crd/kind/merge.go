package kind

import (
	"slices"

	smd "sigs.k8s.io/structured-merge-diff/v4/schema"
	"sigs.k8s.io/structured-merge-diff/v4/typed"

	"binnacle/services/apiserver/internal/json/tape"
	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/registry/apis/mergetypes"
)

// mergeSchema describes how the fields of a kind's objects are merged.
type mergeSchema struct {
	schema *smd.Schema
	root   smd.TypeRef
}

// mergeType implements registry.Kind.
func (s *versionSchema) mergeType() typed.ParseableType {
	m := s.merge()
	if m.schema == nil {
		return typed.DeducedParseableType
	}
	return typed.ParseableType{Schema: m.schema, TypeRef: m.root}
}

const (
	metadataType = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
	// deducedType is the type of a value that is merged according to its own type.
	deducedType = "__untyped_deduced_"
	// atomicType is the type of a value that is replaced as a whole.
	atomicType = "__untyped_atomic_"
)

// newMergeSchema returns the merge rules of a schema, as schemaconv of kube-openapi derives them.
// preserve is the definition's field preserveUnknownFields.
func newMergeSchema(props *apiextensionsv1.JSONSchemaProps, preserve bool) mergeSchema {
	known := mergetypes.Schema()
	if known == nil || props == nil {
		return mergeSchema{}
	}
	if definesFields := props.Type == "object" || len(props.Properties) > 0; !definesFields {
		return mergeSchema{}
	}
	preserve = preserve || preservesUnknown(props)
	return mergeSchema{schema: known, root: smd.TypeRef{Inlined: smd.Atom{Map: mapOf(props, preserve, true)}}}
}

// preservesUnknown reports whether a schema opts itself and everything below it into unknown fields.
func preservesUnknown(s *apiextensionsv1.JSONSchemaProps) bool {
	return s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields
}

func namedType(name string) smd.TypeRef { return smd.TypeRef{NamedType: &name} }

func scalarAtom(kind smd.Scalar) smd.Atom { return smd.Atom{Scalar: &kind} }

// typeRefOf returns the rule of a field. preserve states that unknown fields are allowed above it.
func typeRefOf(props *apiextensionsv1.JSONSchemaProps, preserve bool) smd.TypeRef {
	if props == nil || isUntyped(props) {
		return namedType(deducedType)
	}
	return smd.TypeRef{Inlined: atomOf(props, preserve)}
}

// isUntyped reports whether a schema has neither a type nor a keyword that implies one.
func isUntyped(props *apiextensionsv1.JSONSchemaProps) bool {
	impliesObject := props.XEmbeddedResource || props.XMapType != nil || len(props.Properties) > 0 || props.AdditionalProperties != nil
	impliesList := props.XListType != nil || props.Items != nil
	return props.Type == "" && !impliesObject && !impliesList
}

// atomOf returns the rule of a value by its type.
func atomOf(schemaProps *apiextensionsv1.JSONSchemaProps, preserve bool) smd.Atom {
	preserve = preserve || preservesUnknown(schemaProps)
	switch schemaProps.Type {
	case "":
		return smd.Atom{
			Scalar: scalarAtom(smd.Untyped).Scalar,
			List:   listOf(schemaProps, preserve),
			Map:    mapOf(schemaProps, preserve, schemaProps.XEmbeddedResource),
		}
	case "object":
		return smd.Atom{Map: mapOf(schemaProps, preserve, schemaProps.XEmbeddedResource)}
	case "array":
		return smd.Atom{List: listOf(schemaProps, preserve)}
	case "integer", "number":
		return scalarAtom(smd.Numeric)
	case "boolean":
		return scalarAtom(smd.Boolean)
	case "string":
		if schemaProps.Format == "" || schemaProps.Format == "byte" {
			return scalarAtom(smd.String)
		}
	}
	return scalarAtom(smd.Untyped)
}

// mapOf returns the rule of an object. resource adds the fields that every resource has.
func mapOf(schemaProps *apiextensionsv1.JSONSchemaProps, preserve, resource bool) *smd.Map {
	mapRules := &smd.Map{}
	if schemaProps.XMapType != nil && *schemaProps.XMapType == "atomic" {
		mapRules.ElementRelationship = smd.Atomic
	}

	// 1. The fields of the schema, sorted by name.
	names := make([]string, 0, len(schemaProps.Properties))
	for name := range schemaProps.Properties {
		if !resource || name != "apiVersion" && name != "kind" && name != "metadata" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		p := schemaProps.Properties[name]
		structField := smd.StructField{Name: name, Type: typeRefOf(&p, preserve)}
		if p.Default != nil {
			if v, err := decodeJSON(p.Default.Raw); err == nil {
				structField.Default = v
			}
		}
		mapRules.Fields = append(mapRules.Fields, structField)
	}

	// 2. The fields that every resource has.
	if resource {
		mapRules.Fields = append(mapRules.Fields,
			smd.StructField{Name: "apiVersion", Type: smd.TypeRef{Inlined: scalarAtom(smd.String)}},
			smd.StructField{Name: "kind", Type: smd.TypeRef{Inlined: scalarAtom(smd.String)}},
			smd.StructField{Name: "metadata", Type: namedType(metadataType)})
	}

	// 3. The type of all other fields.
	additional := schemaProps.AdditionalProperties
	switch {
	case additional == nil:
		if preserve || len(mapRules.Fields) == 0 {
			mapRules.ElementType = namedType(deducedType)
		}
	case additional.Schema != nil:
		mapRules.ElementType = typeRefOf(additional.Schema, preserve)
	case additional.Allows:
		mapRules.ElementType = namedType(deducedType)
	}
	return mapRules
}

// listOf returns the rule of a list by its list type.
func listOf(schemaProps *apiextensionsv1.JSONSchemaProps, preserve bool) *smd.List {
	list := &smd.List{ElementRelationship: smd.Atomic, ElementType: namedType(atomicType)}
	if schemaProps.Items != nil && schemaProps.Items.Schema != nil {
		list.ElementType = typeRefOf(schemaProps.Items.Schema, preserve)
	}
	if schemaProps.XListType == nil {
		return list
	}
	switch *schemaProps.XListType {
	case "set":
		list.ElementRelationship = smd.Associative
	case "map":
		list.ElementRelationship = smd.Associative
		list.Keys = schemaProps.XListMapKeys
	}
	return list
}

// decodeJSON returns a JSON value as a Go value.
func decodeJSON(raw []byte) (v any, err error) {
	doc, err := tape.Parse(raw)
	if err != nil {
		return nil, err
	}
	defer doc.Release()
	return doc.Any(tape.Root), nil
}
