package apiextensions

import (
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// gates holds the feature gates that control fields of CustomResourceDefinitions.
type gates struct {
	ratcheting bool // enables optionalOldSelf
	fields     bool // enables selectableFields
}

// drop removes the fields of disabled gates, unless the old definition has them. old is nil on a
// create.
func (g gates) drop(spec, old *v1.CustomResourceDefinitionSpec) {
	if !g.ratcheting && (old == nil || !anySchema(old, hasOptionalOldSelf)) {
		for i := range spec.Versions {
			dropOptionalOldSelf(schemaOf(spec.Versions[i].Schema))
		}
	}
	if !g.fields && (old == nil || !hasSelectableFields(old)) {
		for i := range spec.Versions {
			spec.Versions[i].SelectableFields = nil
		}
	}
}

func hasSelectableFields(s *v1.CustomResourceDefinitionSpec) bool {
	for i := range s.Versions {
		if s.Versions[i].SelectableFields != nil {
			return true
		}
	}
	return false
}

func hasOptionalOldSelf(s *v1.JSONSchemaProps) bool {
	for i := range s.XValidations {
		if s.XValidations[i].OptionalOldSelf != nil {
			return true
		}
	}
	return false
}

// dropOptionalOldSelf removes optionalOldSelf from the rules of a schema and of the properties,
// items and additional properties below it. Like Kubernetes, it does not descend into allOf, anyOf,
// oneOf and not, where validation rules are not allowed.
func dropOptionalOldSelf(schemaProps *v1.JSONSchemaProps) {
	if schemaProps == nil {
		return
	}
	for i := range schemaProps.XValidations {
		schemaProps.XValidations[i].OptionalOldSelf = nil
	}
	if schemaProps.AdditionalProperties != nil {
		dropOptionalOldSelf(schemaProps.AdditionalProperties.Schema)
	}
	for name, below := range schemaProps.Properties {
		dropOptionalOldSelf(&below)
		schemaProps.Properties[name] = below
	}
	if schemaProps.Items != nil {
		dropOptionalOldSelf(schemaProps.Items.Schema)
		for i := range schemaProps.Items.JSONSchemas {
			dropOptionalOldSelf(&schemaProps.Items.JSONSchemas[i])
		}
	}
}
