package v1

import (
	"bytes"
	"errors"
	"reflect"

	"k8s.io/apimachinery/pkg/util/json"
)

var jsonNull = []byte("null")

// MarshalJSON returns the text unchanged, or null.
func (j JSON) MarshalJSON() ([]byte, error) {
	if len(j.Raw) == 0 {
		return jsonNull, nil
	}
	return j.Raw, nil
}

// UnmarshalJSON keeps the text. A null leaves the value empty.
func (j *JSON) UnmarshalJSON(data []byte) error {
	if !bytes.Equal(data, jsonNull) {
		j.Raw = bytes.Clone(data)
	}
	return nil
}

// The unions below are encoded in one pass. encoding/json scans the result of MarshalJSON, so with
// nested MarshalJSON calls it would scan a schema once for each level above it.

// MarshalJSON encodes the list if it is not empty, otherwise the schema.
func (s JSONSchemaPropsOrArray) MarshalJSON() ([]byte, error) {
	return appendJSON(nil, reflect.ValueOf(s)), nil
}

// UnmarshalJSON decodes an object as a schema and an array as a list. It ignores any other value.
func (s *JSONSchemaPropsOrArray) UnmarshalJSON(data []byte) error {
	*s = JSONSchemaPropsOrArray{}
	switch firstByte(data) {
	case '{':
		s.Schema = &JSONSchemaProps{}
		return json.Unmarshal(data, s.Schema)
	case '[':
		return json.Unmarshal(data, &s.JSONSchemas)
	}
	return nil
}

// MarshalJSON encodes the names if there are any, otherwise the schema.
func (s JSONSchemaPropsOrStringArray) MarshalJSON() ([]byte, error) {
	return appendJSON(nil, reflect.ValueOf(s)), nil
}

// UnmarshalJSON decodes an object as a schema and an array as names. It ignores any other value.
func (s *JSONSchemaPropsOrStringArray) UnmarshalJSON(data []byte) error {
	*s = JSONSchemaPropsOrStringArray{}
	switch firstByte(data) {
	case '{':
		s.Schema = &JSONSchemaProps{}
		return json.Unmarshal(data, s.Schema)
	case '[':
		return json.Unmarshal(data, &s.Property)
	}
	return nil
}

// MarshalJSON encodes the schema if there is one, otherwise the boolean.
func (s JSONSchemaPropsOrBool) MarshalJSON() ([]byte, error) {
	return appendJSON(nil, reflect.ValueOf(s)), nil
}

// UnmarshalJSON decodes a schema or a boolean. A schema sets Allows.
func (s *JSONSchemaPropsOrBool) UnmarshalJSON(data []byte) error {
	*s = JSONSchemaPropsOrBool{}
	switch {
	case firstByte(data) == '{':
		s.Allows = true
		s.Schema = &JSONSchemaProps{}
		return json.Unmarshal(data, s.Schema)
	case string(data) == "true":
		s.Allows = true
		return nil
	case string(data) == "false":
		return nil
	}
	return errors.New("boolean or JSON schema expected")
}

// firstByte returns the first byte of a JSON value, or 0 if data is empty.
func firstByte(data []byte) byte {
	if len(data) == 0 {
		return 0
	}
	return data[0]
}

// The types below have no single JSON type, and their OpenAPI schemas state none.

// OpenAPISchemaType returns nil: any type.
func (JSON) OpenAPISchemaType() []string { return nil }

// OpenAPISchemaFormat returns "": no format.
func (JSON) OpenAPISchemaFormat() string { return "" }

// OpenAPISchemaType returns nil: any type.
func (JSONSchemaPropsOrArray) OpenAPISchemaType() []string { return nil }

// OpenAPISchemaFormat returns "": no format.
func (JSONSchemaPropsOrArray) OpenAPISchemaFormat() string { return "" }

// OpenAPISchemaType returns nil: any type.
func (JSONSchemaPropsOrBool) OpenAPISchemaType() []string { return nil }

// OpenAPISchemaFormat returns "": no format.
func (JSONSchemaPropsOrBool) OpenAPISchemaFormat() string { return "" }

// OpenAPISchemaType returns nil: any type.
func (JSONSchemaPropsOrStringArray) OpenAPISchemaType() []string { return nil }

// OpenAPISchemaFormat returns "": no format.
func (JSONSchemaPropsOrStringArray) OpenAPISchemaFormat() string { return "" }
