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

// ReadPlainSchema reads a schema like ReadSchema if it has no unknown or repeated keywords and all
// values have the right types. It returns false for any other schema.
func ReadPlainSchema(data []byte) (*JSONSchemaProps, bool) {
	d, err := tape.Parse(data)
	if err != nil {
		return nil, false
	}
	defer d.Release()
	s := &JSONSchemaProps{}
	r := &schemaReader{d}
	return s, d.Clean() && r.readSchema(tape.Root, s)
}

// schemaReader fills schemas from a document without repeated keys. Its methods return false for
// unusual values.
type schemaReader struct{ *tape.Doc }

// readSchema reads a schema.
func (r *schemaReader) readSchema(at tape.Ref, s *JSONSchemaProps) bool {
	return r.readMembers(at, func(name string, v tape.Ref) bool { return r.readKeyword(name, v, s) })
}

// readMembers calls read for each member of an object, until it returns false.
func (r *schemaReader) readMembers(at tape.Ref, each func(name string, v tape.Ref) bool) bool {
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

// readKeyword reads the value of a keyword. It returns false if the keyword or its value is not
// known.
func (r *schemaReader) readKeyword(name string, v tape.Ref, s *JSONSchemaProps) bool {
	if r.Kind(v) == tape.Null {
		return knownKeywords[name]
	}
	switch name {
	case "type":
		return r.readText(v, &s.Type)
	case "description":
		return r.readText(v, &s.Description)
	case "properties":
		return r.readSchemaMap(v, &s.Properties)
	case "items":
		return r.readItems(v, &s.Items)
	case "additionalProperties":
		return r.readSchemaOrBool(v, &s.AdditionalProperties)
	case "required":
		return r.readTexts(v, &s.Required)
	case "format":
		return r.readText(v, &s.Format)
	case "pattern":
		return r.readText(v, &s.Pattern)
	case "enum":
		return r.readAnyList(v, &s.Enum)
	case "default":
		return r.readAny(v, &s.Default)
	case "minimum":
		return r.readFloat(v, &s.Minimum)
	case "maximum":
		return r.readFloat(v, &s.Maximum)
	case "minLength":
		return r.readInt(v, &s.MinLength)
	case "maxLength":
		return r.readInt(v, &s.MaxLength)
	case "minItems":
		return r.readInt(v, &s.MinItems)
	case "maxItems":
		return r.readInt(v, &s.MaxItems)
	case "nullable":
		return r.readBool(v, &s.Nullable)
	case "x-kubernetes-validations":
		return r.readRules(v, &s.XValidations)
	case "x-kubernetes-int-or-string":
		return r.readBool(v, &s.XIntOrString)
	case "x-kubernetes-preserve-unknown-fields":
		return r.readBoolPointer(v, &s.XPreserveUnknownFields)
	case "x-kubernetes-embedded-resource":
		return r.readBool(v, &s.XEmbeddedResource)
	case "x-kubernetes-list-map-keys":
		return r.readTexts(v, &s.XListMapKeys)
	case "x-kubernetes-list-type":
		return r.readTextPointer(v, &s.XListType)
	case "x-kubernetes-map-type":
		return r.readTextPointer(v, &s.XMapType)
	case "anyOf":
		return r.readSchemaList(v, &s.AnyOf)
	case "allOf":
		return r.readSchemaList(v, &s.AllOf)
	case "oneOf":
		return r.readSchemaList(v, &s.OneOf)
	case "not":
		s.Not = &JSONSchemaProps{}
		return r.readSchema(v, s.Not)
	}
	return r.readRareKeyword(name, v, s)
}

// readRareKeyword reads the value of a keyword that few schemas have. It returns false like
// readKeyword.
func (r *schemaReader) readRareKeyword(name string, v tape.Ref, s *JSONSchemaProps) bool {
	switch name {
	case "title":
		return r.readText(v, &s.Title)
	case "exclusiveMinimum":
		return r.readBool(v, &s.ExclusiveMinimum)
	case "exclusiveMaximum":
		return r.readBool(v, &s.ExclusiveMaximum)
	case "multipleOf":
		return r.readFloat(v, &s.MultipleOf)
	case "uniqueItems":
		return r.readBool(v, &s.UniqueItems)
	case "minProperties":
		return r.readInt(v, &s.MinProperties)
	case "maxProperties":
		return r.readInt(v, &s.MaxProperties)
	case "example":
		return r.readAny(v, &s.Example)
	case "externalDocs":
		s.ExternalDocs = &ExternalDocumentation{}
		return r.readMembers(v, func(name string, v tape.Ref) bool {
			switch name {
			case "description":
				return r.readText(v, &s.ExternalDocs.Description)
			case "url":
				return r.readText(v, &s.ExternalDocs.URL)
			}
			return false
		})
	}
	return false // keywords that no structural schema may have, and unknown names
}

// knownKeywords holds the keywords that schemaReader reads.
var knownKeywords = func() map[string]bool {
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

// readText reads a string. This method and the ones below read one value of a type into a field of
// a schema.
func (r *schemaReader) readText(v tape.Ref, into *string) bool {
	if r.Kind(v) != tape.String {
		return false
	}
	*into = strings.Clone(r.String(v))
	return true
}

func (r *schemaReader) readTextPointer(v tape.Ref, into **string) bool {
	*into = new(string)
	return r.readText(v, *into)
}

func (r *schemaReader) readBool(v tape.Ref, into *bool) bool {
	*into = r.Kind(v) == tape.True
	return *into || r.Kind(v) == tape.False
}

func (r *schemaReader) readBoolPointer(v tape.Ref, into **bool) bool {
	*into = new(bool)
	return r.readBool(v, *into)
}

func (r *schemaReader) readInt(v tape.Ref, into **int64) bool {
	if r.Kind(v) != tape.Number {
		return false
	}
	n, ok := r.Int(v)
	*into = &n
	return ok
}

func (r *schemaReader) readFloat(v tape.Ref, into **float64) bool {
	if r.Kind(v) != tape.Number {
		return false
	}
	n := r.Float(v)
	*into = &n
	return !math.IsInf(n, 0)
}

func (r *schemaReader) readTexts(v tape.Ref, into *[]string) bool {
	return readElements(r, v, into, r.readText)
}

// readElements fills a list from an array. fill returns false for an unusual element, such as null.
func readElements[T any](r *schemaReader, v tape.Ref, into *[]T, fill func(tape.Ref, *T) bool) bool {
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

func (r *schemaReader) readAny(v tape.Ref, into **JSON) bool {
	*into = &JSON{Raw: bytes.Clone(r.Text(v))}
	return true
}

func (r *schemaReader) readAnyList(v tape.Ref, into *[]JSON) bool {
	return readElements(r, v, into, func(v tape.Ref, into *JSON) bool {
		if r.Kind(v) != tape.Null {
			into.Raw = bytes.Clone(r.Text(v))
		}
		return true
	})
}

func (r *schemaReader) readSchemaList(v tape.Ref, into *[]JSONSchemaProps) bool {
	return readElements(r, v, into, r.readSchema)
}

// readSchemaMap reads a map of schemas.
func (r *schemaReader) readSchemaMap(v tape.Ref, into *map[string]JSONSchemaProps) bool {
	if r.Kind(v) != tape.Object {
		return false
	}
	*into = make(map[string]JSONSchemaProps, r.Len(v))
	var s JSONSchemaProps // reused, because schemas are large and the map holds copies
	return r.readMembers(v, func(name string, v tape.Ref) bool {
		s = JSONSchemaProps{}
		if !r.readSchema(v, &s) {
			return false
		}
		(*into)[strings.Clone(name)] = s
		return true
	})
}

// readItems reads items, which is always a single schema here: a structural schema has no list.
func (r *schemaReader) readItems(v tape.Ref, into **JSONSchemaPropsOrArray) bool {
	*into = &JSONSchemaPropsOrArray{Schema: &JSONSchemaProps{}}
	return r.readSchema(v, (*into).Schema)
}

func (r *schemaReader) readSchemaOrBool(v tape.Ref, into **JSONSchemaPropsOrBool) bool {
	*into = &JSONSchemaPropsOrBool{}
	if r.Kind(v) != tape.Object {
		return r.readBool(v, &(*into).Allows)
	}
	(*into).Allows = true
	(*into).Schema = &JSONSchemaProps{}
	return r.readSchema(v, (*into).Schema)
}

// readRules reads the validation rules of a schema.
func (r *schemaReader) readRules(v tape.Ref, into *ValidationRules) bool {
	return readElements(r, v, (*[]ValidationRule)(into), func(at tape.Ref, rule *ValidationRule) bool {
		return r.readMembers(at, func(name string, v tape.Ref) bool {
			switch name {
			case "rule":
				return r.readText(v, &rule.Rule)
			case "message":
				return r.readText(v, &rule.Message)
			case "messageExpression":
				return r.readText(v, &rule.MessageExpression)
			case "fieldPath":
				return r.readText(v, &rule.FieldPath)
			case "reason":
				rule.Reason = new(FieldValueErrorReason)
				return r.readText(v, (*string)(rule.Reason))
			case "optionalOldSelf":
				return r.readBoolPointer(v, &rule.OptionalOldSelf)
			}
			return false
		})
	})
}
