package structural

import (
	"errors"
	"fmt"

	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// Unsupported returns an error for the first keyword of a schema that no structural schema may
// have. Such a schema cannot be checked further.
func Unsupported(s *v1.JSONSchemaProps) error {
	var err error
	AnySchema(s, func(s *v1.JSONSchemaProps) bool {
		err = checkKeywords(s)
		return err != nil
	})
	return err
}

// checkKeywords returns an error if a schema uses a keyword that structural schemas forbid.
func checkKeywords(schemaProps *v1.JSONSchemaProps) error {
	for _, keyword := range []struct {
		name string
		set  bool
	}{
		{"id", schemaProps.ID != ""},
		{"schema", schemaProps.Schema != ""},
		{"$ref", schemaProps.Ref != nil && *schemaProps.Ref != ""},
		{"patternProperties", len(schemaProps.PatternProperties) > 0},
		{"dependencies", len(schemaProps.Dependencies) > 0},
		{"additionalItems", schemaProps.AdditionalItems != nil},
		{"definitions", len(schemaProps.Definitions) > 0},
	} {
		if keyword.set {
			return fmt.Errorf("OpenAPIV3Schema '%s' is not supported", keyword.name)
		}
	}
	if schemaProps.Items != nil && len(schemaProps.Items.JSONSchemas) > 0 {
		return errors.New("OpenAPIV3Schema 'items' must be a schema, but is an array")
	}
	if schemaProps.XPreserveUnknownFields != nil && !*schemaProps.XPreserveUnknownFields {
		return errors.New("internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined")
	}
	return nil
}
