package v1

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"

	"binnacle/services/apiserver/internal/json/jsontext"
)

// AppendJSON appends the JSON of the schema as encoding/json writes it, except that it appends
// users' values (defaults, enums and examples) unchanged.
func (s *JSONSchemaProps) AppendJSON(dst []byte) []byte {
	w := schemaWriter{dst: append(dst, '{')}
	w.writeText("id", s.ID)
	w.writeText("$schema", string(s.Schema))
	w.writeTextPointer("$ref", s.Ref)
	w.writeText("description", s.Description)
	w.writeText("type", s.Type)
	w.writeText("format", s.Format)
	w.writeText("title", s.Title)
	w.writeAny("default", s.Default)
	w.writeFloat("maximum", s.Maximum)
	w.writeBool("exclusiveMaximum", s.ExclusiveMaximum)
	w.writeFloat("minimum", s.Minimum)
	w.writeBool("exclusiveMinimum", s.ExclusiveMinimum)
	w.writeInt("maxLength", s.MaxLength)
	w.writeInt("minLength", s.MinLength)
	w.writeText("pattern", s.Pattern)
	w.writeInt("maxItems", s.MaxItems)
	w.writeInt("minItems", s.MinItems)
	w.writeBool("uniqueItems", s.UniqueItems)
	w.writeFloat("multipleOf", s.MultipleOf)
	writeList(&w, "enum", s.Enum, func(v *JSON) { w.writeRaw(v.Raw) })
	w.writeInt("maxProperties", s.MaxProperties)
	w.writeInt("minProperties", s.MinProperties)
	w.writeTexts("required", s.Required)
	if i := s.Items; i != nil {
		w.writeName("items")
		if len(i.JSONSchemas) > 0 {
			w.writeSchemaArray(i.JSONSchemas)
		} else {
			w.writeSchema(i.Schema)
		}
	}
	w.writeSchemaList("allOf", s.AllOf)
	w.writeSchemaList("oneOf", s.OneOf)
	w.writeSchemaList("anyOf", s.AnyOf)
	if s.Not != nil {
		w.writeName("not")
		w.writeSchema(s.Not)
	}
	w.writeSchemaMap("properties", s.Properties)
	w.writeSchemaOrBool("additionalProperties", s.AdditionalProperties)
	w.writeSchemaMap("patternProperties", s.PatternProperties)
	w.writeDependencies(s.Dependencies)
	w.writeSchemaOrBool("additionalItems", s.AdditionalItems)
	w.writeSchemaMap("definitions", s.Definitions)
	if e := s.ExternalDocs; e != nil {
		w.writeName("externalDocs")
		w.writeBracket('{')
		w.writeText("description", e.Description)
		w.writeText("url", e.URL)
		w.writeBracket('}')
	}
	w.writeAny("example", s.Example)
	w.writeBool("nullable", s.Nullable)
	w.writeBoolPointer("x-kubernetes-preserve-unknown-fields", s.XPreserveUnknownFields)
	w.writeBool("x-kubernetes-embedded-resource", s.XEmbeddedResource)
	w.writeBool("x-kubernetes-int-or-string", s.XIntOrString)
	w.writeTexts("x-kubernetes-list-map-keys", s.XListMapKeys)
	w.writeTextPointer("x-kubernetes-list-type", s.XListType)
	w.writeTextPointer("x-kubernetes-map-type", s.XMapType)
	writeList(&w, "x-kubernetes-validations", s.XValidations, w.writeRule)
	return append(w.dst, '}')
}

// schemaWriter appends a schema's JSON to dst.
type schemaWriter struct{ dst []byte }

// writeBracket appends an opening or closing bracket.
func (w *schemaWriter) writeBracket(c byte) { w.dst = append(w.dst, c) }

// writeComma appends a comma, except at the start of an object or list.
func (w *schemaWriter) writeComma() {
	if c := w.dst[len(w.dst)-1]; c != '{' && c != '[' {
		w.dst = append(w.dst, ',')
	}
}

// writeName appends the name of a member, after a comma if it is not the first one.
func (w *schemaWriter) writeName(name string) {
	w.writeComma()
	w.dst = append(jsontext.AppendString(w.dst, name), ':')
}

// writeText writes a string. This method and the ones below write a member, unless its value is
// empty.
func (w *schemaWriter) writeText(name, value string) {
	if value != "" {
		w.writeName(name)
		w.dst = jsontext.AppendString(w.dst, value)
	}
}

func (w *schemaWriter) writeTextPointer(name string, value *string) {
	if value != nil {
		w.writeName(name)
		w.dst = jsontext.AppendString(w.dst, *value)
	}
}

func (w *schemaWriter) writeBool(name string, value bool) {
	if value {
		w.writeBoolPointer(name, &value)
	}
}

func (w *schemaWriter) writeBoolPointer(name string, value *bool) {
	if value != nil {
		w.writeName(name)
		w.dst = strconv.AppendBool(w.dst, *value)
	}
}

func (w *schemaWriter) writeInt(name string, value *int64) {
	if value != nil {
		w.writeName(name)
		w.dst = strconv.AppendInt(w.dst, *value, 10)
	}
}

// writeFloat writes a number. Integers have no fraction.
func (w *schemaWriter) writeFloat(name string, value *float64) {
	if value == nil {
		return
	}
	w.writeName(name)
	if f := *value; f == math.Trunc(f) && math.Abs(f) < 1<<53 && f != 0 {
		w.dst = strconv.AppendInt(w.dst, int64(f), 10)
		return
	}
	b, err := json.Marshal(*value)
	if err != nil { // JSON has no number for this value, which did not come from JSON
		b = []byte("null")
	}
	w.dst = append(w.dst, b...)
}

// writeRaw appends a JSON value, or null if it is empty.
func (w *schemaWriter) writeRaw(value []byte) {
	if len(value) == 0 {
		value = jsonNull
	}
	w.dst = append(w.dst, value...)
}

func (w *schemaWriter) writeAny(name string, value *JSON) {
	if value != nil {
		w.writeName(name)
		w.writeRaw(value.Raw)
	}
}

// writeList appends a list. write appends each of its elements.
func writeList[T any](w *schemaWriter, name string, list []T, write func(*T)) {
	if len(list) == 0 {
		return
	}
	w.writeName(name)
	w.writeElements(len(list), func(i int) { write(&list[i]) })
}

// writeElements appends an array of n elements. write appends the element with an index.
func (w *schemaWriter) writeElements(n int, write func(i int)) {
	w.writeBracket('[')
	for i := range n {
		w.writeComma()
		write(i)
	}
	w.writeBracket(']')
}

func (w *schemaWriter) writeTexts(name string, list []string) {
	writeList(w, name, list, func(s *string) { w.dst = jsontext.AppendString(w.dst, *s) })
}

// writeSchema appends a schema, or null.
func (w *schemaWriter) writeSchema(s *JSONSchemaProps) {
	if s == nil {
		w.writeRaw(nil)
		return
	}
	w.dst = s.AppendJSON(w.dst)
}

// writeSchemaArray appends an array of schemas, without a member name.
func (w *schemaWriter) writeSchemaArray(list []JSONSchemaProps) {
	w.writeElements(len(list), func(i int) { w.writeSchema(&list[i]) })
}

func (w *schemaWriter) writeSchemaList(name string, list []JSONSchemaProps) {
	writeList(w, name, list, w.writeSchema)
}

// writeSchemaMap writes schemas by name, in the order of the names.
func (w *schemaWriter) writeSchemaMap(name string, named map[string]JSONSchemaProps) {
	if len(named) == 0 {
		return
	}
	w.writeName(name)
	w.writeBracket('{')
	for _, key := range slices.Sorted(maps.Keys(named)) {
		s := named[key]
		w.writeName(key)
		w.writeSchema(&s)
	}
	w.writeBracket('}')
}

func (w *schemaWriter) writeSchemaOrBool(name string, s *JSONSchemaPropsOrBool) {
	switch {
	case s == nil:
	case s.Schema != nil:
		w.writeName(name)
		w.writeSchema(s.Schema)
	default:
		w.writeBoolPointer(name, &s.Allows)
	}
}

// writeDependencies writes the keyword "dependencies".
func (w *schemaWriter) writeDependencies(named JSONSchemaDependencies) {
	if len(named) == 0 {
		return
	}
	w.writeName("dependencies")
	w.writeBracket('{')
	for _, key := range slices.Sorted(maps.Keys(named)) {
		w.writeName(key)
		if d := named[key]; len(d.Property) > 0 {
			w.writeElements(len(d.Property), func(i int) { w.dst = jsontext.AppendString(w.dst, d.Property[i]) })
		} else {
			w.writeSchema(d.Schema)
		}
	}
	w.writeBracket('}')
}

// writeRule appends a validation rule.
func (w *schemaWriter) writeRule(r *ValidationRule) {
	w.writeBracket('{')
	w.writeName("rule")
	w.dst = jsontext.AppendString(w.dst, r.Rule)
	w.writeText("message", r.Message)
	w.writeText("messageExpression", r.MessageExpression)
	w.writeTextPointer("reason", (*string)(r.Reason))
	w.writeText("fieldPath", r.FieldPath)
	w.writeBoolPointer("optionalOldSelf", r.OptionalOldSelf)
	w.writeBracket('}')
}
