package v1

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"

	"binnacle/services/apiserver/internal/json/tape"
)

// ReadSchema decodes a schema with the result of encoding/json, but ten times as fast. It uses
// encoding/json only for JSON that this package would not write.
func ReadSchema(data []byte) (*JSONSchemaProps, error) {
	if s, ok := ReadPlainSchema(data); ok {
		return s, nil
	}
	s := &JSONSchemaProps{}
	return s, json.Unmarshal(data, s)
}

// ReadPlainSchema is ReadSchema for schemas without unknown or repeated keywords whose values all
// have the right types. It returns false for any other schema.
func ReadPlainSchema(data []byte) (*JSONSchemaProps, bool) {
	d, err := tape.Parse(data)
	if err != nil {
		return nil, false
	}
	defer d.Release()
	s := &JSONSchemaProps{}
	r := &schemaReader{d}
	return s, d.Clean() && r.schema(tape.Root, s)
}

// schemaReader fills schemas from a document without repeated keys. Its methods return false for
// unusual values.
type schemaReader struct{ *tape.Doc }

// schema reads a schema.
func (r *schemaReader) schema(at tape.Ref, s *JSONSchemaProps) bool {
	return r.members(at, func(name string, v tape.Ref) bool { return r.keyword(name, v, s) })
}

// members calls each for the members of an object until it returns false.
func (r *schemaReader) members(at tape.Ref, each func(name string, v tape.Ref) bool) bool {
	if r.Kind(at) != tape.Object {
		return false
	}
	for k, end := r.First(at), r.Next(at); k < end; k = r.Next(k + 1) {
		if !each(r.String(k), k+1) {
			return false
		}
	}
	return true
}

// keyword reads the value of a keyword. It returns false if the keyword or its value is not known.
func (r *schemaReader) keyword(name string, v tape.Ref, s *JSONSchemaProps) bool {
	if r.Kind(v) == tape.Null {
		return known[name]
	}
	switch name {
	case "type":
		return r.text(v, &s.Type)
	case "description":
		return r.text(v, &s.Description)
	case "properties":
		return r.schemas(v, &s.Properties)
	case "items":
		return r.orArray(v, &s.Items)
	case "additionalProperties":
		return r.orBool(v, &s.AdditionalProperties)
	case "required":
		return r.texts(v, &s.Required)
	case "format":
		return r.text(v, &s.Format)
	case "pattern":
		return r.text(v, &s.Pattern)
	case "enum":
		return r.values(v, &s.Enum)
	case "default":
		return r.value(v, &s.Default)
	case "minimum":
		return r.float(v, &s.Minimum)
	case "maximum":
		return r.float(v, &s.Maximum)
	case "minLength":
		return r.integer(v, &s.MinLength)
	case "maxLength":
		return r.integer(v, &s.MaxLength)
	case "minItems":
		return r.integer(v, &s.MinItems)
	case "maxItems":
		return r.integer(v, &s.MaxItems)
	case "nullable":
		return r.flag(v, &s.Nullable)
	case "x-kubernetes-validations":
		return r.rules(v, &s.XValidations)
	case "x-kubernetes-int-or-string":
		return r.flag(v, &s.XIntOrString)
	case "x-kubernetes-preserve-unknown-fields":
		return r.optionalFlag(v, &s.XPreserveUnknownFields)
	case "x-kubernetes-embedded-resource":
		return r.flag(v, &s.XEmbeddedResource)
	case "x-kubernetes-list-map-keys":
		return r.texts(v, &s.XListMapKeys)
	case "x-kubernetes-list-type":
		return r.optionalText(v, &s.XListType)
	case "x-kubernetes-map-type":
		return r.optionalText(v, &s.XMapType)
	case "anyOf":
		return r.list(v, &s.AnyOf)
	case "allOf":
		return r.list(v, &s.AllOf)
	case "oneOf":
		return r.list(v, &s.OneOf)
	case "not":
		s.Not = &JSONSchemaProps{}
		return r.schema(v, s.Not)
	}
	return r.rareKeyword(name, v, s)
}

// rareKeyword is keyword for the keywords that few schemas have.
func (r *schemaReader) rareKeyword(name string, v tape.Ref, s *JSONSchemaProps) bool {
	switch name {
	case "title":
		return r.text(v, &s.Title)
	case "exclusiveMinimum":
		return r.flag(v, &s.ExclusiveMinimum)
	case "exclusiveMaximum":
		return r.flag(v, &s.ExclusiveMaximum)
	case "multipleOf":
		return r.float(v, &s.MultipleOf)
	case "uniqueItems":
		return r.flag(v, &s.UniqueItems)
	case "minProperties":
		return r.integer(v, &s.MinProperties)
	case "maxProperties":
		return r.integer(v, &s.MaxProperties)
	case "example":
		return r.value(v, &s.Example)
	case "externalDocs":
		s.ExternalDocs = &ExternalDocumentation{}
		return r.members(v, func(name string, v tape.Ref) bool {
			switch name {
			case "description":
				return r.text(v, &s.ExternalDocs.Description)
			case "url":
				return r.text(v, &s.ExternalDocs.URL)
			}
			return false
		})
	}
	return false // keywords that no structural schema may have, and unknown names
}

// known holds the keywords that schemaReader reads.
var known = func() map[string]bool {
	all := map[string]bool{}
	for _, name := range strings.Fields(`type description properties items additionalProperties required format pattern enum default minimum maximum
		minLength maxLength minItems maxItems nullable x-kubernetes-validations x-kubernetes-int-or-string x-kubernetes-preserve-unknown-fields
		x-kubernetes-embedded-resource x-kubernetes-list-map-keys x-kubernetes-list-type x-kubernetes-map-type anyOf allOf oneOf not
		title exclusiveMinimum exclusiveMaximum multipleOf uniqueItems minProperties maxProperties example externalDocs`) {
		all[name] = true
	}
	return all
}()

// The methods below read one value of a type into a field of a schema.

func (r *schemaReader) text(v tape.Ref, into *string) bool {
	if r.Kind(v) != tape.String {
		return false
	}
	*into = strings.Clone(r.String(v))
	return true
}

func (r *schemaReader) optionalText(v tape.Ref, into **string) bool {
	*into = new(string)
	return r.text(v, *into)
}

func (r *schemaReader) flag(v tape.Ref, into *bool) bool {
	*into = r.Kind(v) == tape.True
	return *into || r.Kind(v) == tape.False
}

func (r *schemaReader) optionalFlag(v tape.Ref, into **bool) bool {
	*into = new(bool)
	return r.flag(v, *into)
}

func (r *schemaReader) integer(v tape.Ref, into **int64) bool {
	if r.Kind(v) != tape.Number {
		return false
	}
	n, ok := r.Int(v)
	*into = &n
	return ok
}

func (r *schemaReader) float(v tape.Ref, into **float64) bool {
	if r.Kind(v) != tape.Number {
		return false
	}
	n := r.Float(v)
	*into = &n
	return !math.IsInf(n, 0)
}

func (r *schemaReader) texts(v tape.Ref, into *[]string) bool {
	return each(r, v, into, r.text)
}

// each fills a list from an array. fill returns false for an unusual element, such as null.
func each[T any](r *schemaReader, v tape.Ref, into *[]T, fill func(tape.Ref, *T) bool) bool {
	if r.Kind(v) != tape.Array {
		return false
	}
	*into = make([]T, r.Len(v))
	n := 0
	for i, end := r.First(v), r.Next(v); i < end; i = r.Next(i) {
		if !fill(i, &(*into)[n]) {
			return false
		}
		n++
	}
	return true
}

func (r *schemaReader) value(v tape.Ref, into **JSON) bool {
	*into = &JSON{Raw: bytes.Clone(r.Text(v))}
	return true
}

func (r *schemaReader) values(v tape.Ref, into *[]JSON) bool {
	return each(r, v, into, func(v tape.Ref, into *JSON) bool {
		if r.Kind(v) != tape.Null {
			into.Raw = bytes.Clone(r.Text(v))
		}
		return true
	})
}

func (r *schemaReader) list(v tape.Ref, into *[]JSONSchemaProps) bool {
	return each(r, v, into, r.schema)
}

// schemas reads a map of schemas.
func (r *schemaReader) schemas(v tape.Ref, into *map[string]JSONSchemaProps) bool {
	if r.Kind(v) != tape.Object {
		return false
	}
	*into = make(map[string]JSONSchemaProps, r.Len(v))
	var s JSONSchemaProps // reused, because schemas are large and the map holds copies
	return r.members(v, func(name string, v tape.Ref) bool {
		s = JSONSchemaProps{}
		if !r.schema(v, &s) {
			return false
		}
		(*into)[strings.Clone(name)] = s
		return true
	})
}

func (r *schemaReader) orArray(v tape.Ref, into **JSONSchemaPropsOrArray) bool {
	*into = &JSONSchemaPropsOrArray{Schema: &JSONSchemaProps{}}
	return r.schema(v, (*into).Schema)
}

func (r *schemaReader) orBool(v tape.Ref, into **JSONSchemaPropsOrBool) bool {
	*into = &JSONSchemaPropsOrBool{}
	if r.Kind(v) != tape.Object {
		return r.flag(v, &(*into).Allows)
	}
	(*into).Allows = true
	(*into).Schema = &JSONSchemaProps{}
	return r.schema(v, (*into).Schema)
}

// rules reads the validation rules of a schema.
func (r *schemaReader) rules(v tape.Ref, into *ValidationRules) bool {
	return each(r, v, (*[]ValidationRule)(into), func(at tape.Ref, rule *ValidationRule) bool {
		return r.members(at, func(name string, v tape.Ref) bool {
			switch name {
			case "rule":
				return r.text(v, &rule.Rule)
			case "message":
				return r.text(v, &rule.Message)
			case "messageExpression":
				return r.text(v, &rule.MessageExpression)
			case "fieldPath":
				return r.text(v, &rule.FieldPath)
			case "reason":
				rule.Reason = new(FieldValueErrorReason)
				return r.text(v, (*string)(rule.Reason))
			case "optionalOldSelf":
				return r.optionalFlag(v, &rule.OptionalOldSelf)
			}
			return false
		})
	})
}
