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
	w.text("id", s.ID)
	w.text("$schema", string(s.Schema))
	w.optionalText("$ref", s.Ref)
	w.text("description", s.Description)
	w.text("type", s.Type)
	w.text("format", s.Format)
	w.text("title", s.Title)
	w.value("default", s.Default)
	w.float("maximum", s.Maximum)
	w.flag("exclusiveMaximum", s.ExclusiveMaximum)
	w.float("minimum", s.Minimum)
	w.flag("exclusiveMinimum", s.ExclusiveMinimum)
	w.integer("maxLength", s.MaxLength)
	w.integer("minLength", s.MinLength)
	w.text("pattern", s.Pattern)
	w.integer("maxItems", s.MaxItems)
	w.integer("minItems", s.MinItems)
	w.flag("uniqueItems", s.UniqueItems)
	w.float("multipleOf", s.MultipleOf)
	writeList(&w, "enum", s.Enum, func(v *JSON) { w.raw(v.Raw) })
	w.integer("maxProperties", s.MaxProperties)
	w.integer("minProperties", s.MinProperties)
	w.texts("required", s.Required)
	if i := s.Items; i != nil {
		w.name("items")
		if len(i.JSONSchemas) > 0 {
			w.array(i.JSONSchemas)
		} else {
			w.schema(i.Schema)
		}
	}
	w.list("allOf", s.AllOf)
	w.list("oneOf", s.OneOf)
	w.list("anyOf", s.AnyOf)
	if s.Not != nil {
		w.name("not")
		w.schema(s.Not)
	}
	w.schemas("properties", s.Properties)
	w.orBool("additionalProperties", s.AdditionalProperties)
	w.schemas("patternProperties", s.PatternProperties)
	w.dependencies(s.Dependencies)
	w.orBool("additionalItems", s.AdditionalItems)
	w.schemas("definitions", s.Definitions)
	if e := s.ExternalDocs; e != nil {
		w.name("externalDocs")
		w.open('{')
		w.text("description", e.Description)
		w.text("url", e.URL)
		w.close('}')
	}
	w.value("example", s.Example)
	w.flag("nullable", s.Nullable)
	w.optionalFlag("x-kubernetes-preserve-unknown-fields", s.XPreserveUnknownFields)
	w.flag("x-kubernetes-embedded-resource", s.XEmbeddedResource)
	w.flag("x-kubernetes-int-or-string", s.XIntOrString)
	w.texts("x-kubernetes-list-map-keys", s.XListMapKeys)
	w.optionalText("x-kubernetes-list-type", s.XListType)
	w.optionalText("x-kubernetes-map-type", s.XMapType)
	writeList(&w, "x-kubernetes-validations", s.XValidations, w.rule)
	return append(w.dst, '}')
}

// schemaWriter appends members and omits empty ones.
type schemaWriter struct{ dst []byte }

func (w *schemaWriter) open(c byte)  { w.dst = append(w.dst, c) }
func (w *schemaWriter) close(c byte) { w.dst = append(w.dst, c) }

// separate appends a comma, except at the start of an object or list.
func (w *schemaWriter) separate() {
	if c := w.dst[len(w.dst)-1]; c != '{' && c != '[' {
		w.dst = append(w.dst, ',')
	}
}

func (w *schemaWriter) name(name string) {
	w.separate()
	w.dst = append(jsontext.AppendString(w.dst, name), ':')
}

func (w *schemaWriter) text(name, value string) {
	if value != "" {
		w.name(name)
		w.dst = jsontext.AppendString(w.dst, value)
	}
}

func (w *schemaWriter) optionalText(name string, value *string) {
	if value != nil {
		w.name(name)
		w.dst = jsontext.AppendString(w.dst, *value)
	}
}

func (w *schemaWriter) flag(name string, value bool) {
	if value {
		w.optionalFlag(name, &value)
	}
}

func (w *schemaWriter) optionalFlag(name string, value *bool) {
	if value != nil {
		w.name(name)
		w.dst = strconv.AppendBool(w.dst, *value)
	}
}

func (w *schemaWriter) integer(name string, value *int64) {
	if value != nil {
		w.name(name)
		w.dst = strconv.AppendInt(w.dst, *value, 10)
	}
}

// float writes a number if it is set. Integers have no fraction.
func (w *schemaWriter) float(name string, value *float64) {
	if value == nil {
		return
	}
	w.name(name)
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

func (w *schemaWriter) raw(value []byte) {
	if len(value) == 0 {
		value = jsonNull
	}
	w.dst = append(w.dst, value...)
}

func (w *schemaWriter) value(name string, value *JSON) {
	if value != nil {
		w.name(name)
		w.raw(value.Raw)
	}
}

// writeList appends a list. write appends each of its elements.
func writeList[T any](w *schemaWriter, name string, list []T, write func(*T)) {
	if len(list) == 0 {
		return
	}
	w.name(name)
	w.elements(len(list), func(i int) { write(&list[i]) })
}

func (w *schemaWriter) elements(n int, write func(i int)) {
	w.open('[')
	for i := range n {
		w.separate()
		write(i)
	}
	w.close(']')
}

func (w *schemaWriter) texts(name string, list []string) {
	writeList(w, name, list, func(s *string) { w.dst = jsontext.AppendString(w.dst, *s) })
}

func (w *schemaWriter) schema(s *JSONSchemaProps) {
	if s == nil {
		w.raw(nil)
		return
	}
	w.dst = s.AppendJSON(w.dst)
}

func (w *schemaWriter) array(list []JSONSchemaProps) {
	w.elements(len(list), func(i int) { w.schema(&list[i]) })
}

func (w *schemaWriter) list(name string, list []JSONSchemaProps) { writeList(w, name, list, w.schema) }

func (w *schemaWriter) schemas(name string, named map[string]JSONSchemaProps) {
	if len(named) == 0 {
		return
	}
	w.name(name)
	w.open('{')
	for _, key := range slices.Sorted(maps.Keys(named)) {
		s := named[key]
		w.name(key)
		w.schema(&s)
	}
	w.close('}')
}

func (w *schemaWriter) orBool(name string, s *JSONSchemaPropsOrBool) {
	switch {
	case s == nil:
	case s.Schema != nil:
		w.name(name)
		w.schema(s.Schema)
	default:
		w.optionalFlag(name, &s.Allows)
	}
}

// dependencies writes the keyword dependencies, if there are any.
func (w *schemaWriter) dependencies(named JSONSchemaDependencies) {
	if len(named) == 0 {
		return
	}
	w.name("dependencies")
	w.open('{')
	for _, key := range slices.Sorted(maps.Keys(named)) {
		w.name(key)
		if d := named[key]; len(d.Property) > 0 {
			w.elements(len(d.Property), func(i int) { w.dst = jsontext.AppendString(w.dst, d.Property[i]) })
		} else {
			w.schema(d.Schema)
		}
	}
	w.close('}')
}

func (w *schemaWriter) rule(r *ValidationRule) {
	w.open('{')
	w.name("rule")
	w.dst = jsontext.AppendString(w.dst, r.Rule)
	w.text("message", r.Message)
	w.text("messageExpression", r.MessageExpression)
	w.optionalText("reason", (*string)(r.Reason))
	w.text("fieldPath", r.FieldPath)
	w.optionalFlag("optionalOldSelf", r.OptionalOldSelf)
	w.close('}')
}
