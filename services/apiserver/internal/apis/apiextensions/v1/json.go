package v1

import (
	"bytes"
	"errors"

	"k8s.io/apimachinery/pkg/util/json"
)

var jsonNull = []byte("null")

// MarshalJSON writes the value as it is.
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

// marshalSchema writes a schema at once: encoding/json goes through what a MarshalJSON returns, so that
// schemas in each other's MarshalJSON would be gone through once for each level.
func marshalSchema(s *JSONSchemaProps) ([]byte, error) {
	if s == nil {
		return jsonNull, nil
	}
	return s.AppendJSON(nil), nil
}

// MarshalJSON writes the list if there is one, the schema otherwise.
func (s JSONSchemaPropsOrArray) MarshalJSON() ([]byte, error) {
	if len(s.JSONSchemas) == 0 {
		return marshalSchema(s.Schema)
	}
	out := []byte{'['}
	for i := range s.JSONSchemas {
		if i > 0 {
			out = append(out, ',')
		}
		out = s.JSONSchemas[i].AppendJSON(out)
	}
	return append(out, ']'), nil
}

// UnmarshalJSON takes an object for a schema and an array for a list; anything
// else is neither.
func (s *JSONSchemaPropsOrArray) UnmarshalJSON(data []byte) error {
	*s = JSONSchemaPropsOrArray{}
	switch first(data) {
	case '{':
		s.Schema = &JSONSchemaProps{}
		return json.Unmarshal(data, s.Schema)
	case '[':
		return json.Unmarshal(data, &s.JSONSchemas)
	}
	return nil
}

// MarshalJSON writes the names if there are any, the schema otherwise.
func (s JSONSchemaPropsOrStringArray) MarshalJSON() ([]byte, error) {
	if len(s.Property) > 0 {
		return json.Marshal(s.Property)
	}
	return marshalSchema(s.Schema)
}

// UnmarshalJSON takes an object for a schema and an array for names; anything
// else is neither.
func (s *JSONSchemaPropsOrStringArray) UnmarshalJSON(data []byte) error {
	*s = JSONSchemaPropsOrStringArray{}
	switch first(data) {
	case '{':
		s.Schema = &JSONSchemaProps{}
		return json.Unmarshal(data, s.Schema)
	case '[':
		return json.Unmarshal(data, &s.Property)
	}
	return nil
}

// MarshalJSON writes the schema if there is one, the boolean otherwise.
func (s JSONSchemaPropsOrBool) MarshalJSON() ([]byte, error) {
	if s.Schema != nil {
		return marshalSchema(s.Schema)
	}
	return json.Marshal(s.Allows)
}

// UnmarshalJSON takes a schema or a boolean. A schema allows.
func (s *JSONSchemaPropsOrBool) UnmarshalJSON(data []byte) error {
	*s = JSONSchemaPropsOrBool{}
	switch {
	case first(data) == '{':
		s.Allows, s.Schema = true, &JSONSchemaProps{}
		return json.Unmarshal(data, s.Schema)
	case string(data) == "true":
		s.Allows = true
		return nil
	case string(data) == "false":
		return nil
	}
	return errors.New("boolean or JSON schema expected")
}

func first(data []byte) byte {
	if len(data) == 0 {
		return 0
	}
	return data[0]
}

// The types below are of no one type in JSON, which is what their schemas say.

// OpenAPISchemaType is any.
func (JSON) OpenAPISchemaType() []string { return nil }

// OpenAPISchemaFormat is none.
func (JSON) OpenAPISchemaFormat() string { return "" }

// OpenAPISchemaType is any.
func (JSONSchemaPropsOrArray) OpenAPISchemaType() []string { return nil }

// OpenAPISchemaFormat is none.
func (JSONSchemaPropsOrArray) OpenAPISchemaFormat() string { return "" }

// OpenAPISchemaType is any.
func (JSONSchemaPropsOrBool) OpenAPISchemaType() []string { return nil }

// OpenAPISchemaFormat is none.
func (JSONSchemaPropsOrBool) OpenAPISchemaFormat() string { return "" }

// OpenAPISchemaType is any.
func (JSONSchemaPropsOrStringArray) OpenAPISchemaType() []string { return nil }

// OpenAPISchemaFormat is none.
func (JSONSchemaPropsOrStringArray) OpenAPISchemaFormat() string { return "" }
