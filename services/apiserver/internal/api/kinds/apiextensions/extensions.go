package apiextensions

import (
	"slices"

	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/registry/validate"
)

// validateExtensions validates the Kubernetes extensions that define how values are merged.
func (r *schemaRules) validateExtensions(fld validate.Field, schemaProps *v1.JSONSchemaProps) {
	if schemaProps.XPreserveUnknownFields != nil && !*schemaProps.XPreserveUnknownFields {
		fld.Invalid("x-kubernetes-preserve-unknown-fields", false, "must be true or undefined")
	}
	if schemaProps.XMapType != nil {
		requireType(fld, schemaProps, "object", "must be object if x-kubernetes-map-type is specified")
		validate.OneOf(fld, "x-kubernetes-map-type", *schemaProps.XMapType, "atomic", "granular")
	}
	if schemaProps.XListType != nil {
		requireType(fld, schemaProps, "array", "must be array if x-kubernetes-list-type is specified")
		if name := nonAtomicItemsExtension(schemaProps); schemaProps.Type == "array" && name != "" && !r.allowsNonAtomicSetItems() {
			// The error has the list type for the map type too, as in Kubernetes.
			fld.Child("items").
				Invalid(name, schemaProps.Items.Schema.XListType, "must be atomic as item of a list with x-kubernetes-list-type=set")
		}
		validate.OneOf(fld, "x-kubernetes-list-type", *schemaProps.XListType, "atomic", "set", "map")
	}
	validateListMap(fld, schemaProps)
	if len(validate.Check(func(fld validate.Field) { forbidNullItems(fld, schemaProps) })) > 0 && !r.allowsNullListItems() {
		forbidNullItems(fld, schemaProps)
	}
}

// requireType requires the type of a schema. detail is the text of the error.
func requireType(fld validate.Field, schemaProps *v1.JSONSchemaProps, expected, detail string) {
	switch schemaProps.Type {
	case expected:
	case "":
		fld.Required("type", detail)
	default:
		fld.Invalid("type", schemaProps.Type, detail)
	}
}

// nonAtomicItemsExtension returns the name of the extension that makes the items of a set not
// atomic, or "".
func nonAtomicItemsExtension(schemaProps *v1.JSONSchemaProps) string {
	if schemaProps.XListType == nil || *schemaProps.XListType != "set" || schemaProps.Items == nil || schemaProps.Items.Schema == nil {
		return ""
	}
	switch each := schemaProps.Items.Schema; {
	case each.Type == "array" && each.XListType != nil && *each.XListType != "atomic":
		return "x-kubernetes-list-type"
	case each.Type == "object" && (each.XMapType == nil || *each.XMapType != "atomic"):
		return "x-kubernetes-map-type"
	}
	return ""
}

// validateListMap validates lists of type map.
func validateListMap(fld validate.Field, schemaProps *v1.JSONSchemaProps) {
	const keys = "x-kubernetes-list-map-keys"
	if len(schemaProps.XListMapKeys) > 0 {
		const detail = "must be map if x-kubernetes-list-map-keys is non-empty"
		if schemaProps.XListType == nil {
			fld.Required("x-kubernetes-list-type", detail)
		} else if *schemaProps.XListType != "map" {
			fld.Invalid("x-kubernetes-list-type", *schemaProps.XListType, detail)
		}
	}
	if schemaProps.XListType == nil || *schemaProps.XListType != "map" {
		return
	}
	if len(schemaProps.XListMapKeys) == 0 {
		fld.Required(keys, "must not be empty if x-kubernetes-list-type is map")
	}
	switch {
	case schemaProps.Items == nil:
		fld.Required("items", "must have a schema if x-kubernetes-list-type is map")
		return
	case schemaProps.Items.Schema == nil:
		fld.Invalid("items", *schemaProps.Items, "must only have a single schema if x-kubernetes-list-type is map")
		return
	case schemaProps.Items.Schema.Type != "object":
		fld.Child("items").Invalid("type", schemaProps.Items.Schema.Type, "must be object if parent array's x-kubernetes-list-type is map")
		return
	}
	seen := validate.Set[string]{}
	for _, k := range schemaProps.XListMapKeys {
		if f, ok := schemaProps.Items.Schema.Properties[k]; !ok {
			fld.Invalid(keys, schemaProps.XListMapKeys, "entries must all be names of item properties")
		} else if f.Type == "array" || f.Type == "object" {
			fld.Child("items").Key("properties", k).Invalid("type", schemaProps.Items.Schema.Type, "must be a scalar type if parent array's x-kubernetes-list-type is map")
		}
		if !seen.Add(k) {
			fld.Invalid(keys, schemaProps.XListMapKeys, "must not contain duplicate entries")
		}
	}
}

// forbidNullItems requires that the items of sets and maps, and the keys of maps, are never null or
// absent.
func forbidNullItems(fld validate.Field, s *v1.JSONSchemaProps) {
	if s.XListType == nil || *s.XListType != "set" && *s.XListType != "map" || s.Items == nil || s.Items.Schema == nil {
		return
	}
	each := s.Items.Schema
	fld = fld.Child("items")
	fld.ForbidSet("nullable", each.Nullable, "cannot be nullable when x-kubernetes-list-type is "+*s.XListType)
	if *s.XListType != "map" {
		return
	}
	for _, k := range s.XListMapKeys {
		f, ok := each.Properties[k]
		if !ok {
			continue
		}
		fld := fld.Key("properties", k)
		if !slices.Contains(each.Required, k) && f.Default == nil {
			fld.Required("default",
				"this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property")
		}
		fld.ForbidSet("nullable", f.Nullable, "this property is in x-kubernetes-list-map-keys, so it cannot be nullable")
	}
}
