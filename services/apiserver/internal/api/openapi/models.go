package openapi

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"binnacle/services/apiserver/internal/api/openapi/typefacts"
	"binnacle/services/apiserver/internal/registry/apis/typename"
)

// Names of the OpenAPI extensions of Kubernetes.
const (
	extGVK           = "x-kubernetes-group-version-kind"
	extAction        = "x-kubernetes-action"
	extListType      = "x-kubernetes-list-type"
	extListKeys      = "x-kubernetes-list-map-keys"
	extMapType       = "x-kubernetes-map-type"
	extPatchStrategy = "x-kubernetes-patch-strategy"
	extPatchMergeKey = "x-kubernetes-patch-merge-key"
	extUnions        = "x-kubernetes-unions"
	extSelectable    = "x-kubernetes-selectable-fields"
)

// models collects the models of one document: the named schemas of Go structs. Adding the model of
// a struct adds the models of all structs to which it refers.
type models struct {
	// facts holds what only the source of the types defines, such as defaults and merge rules. If
	// it is nil, schemas have only the structure of the types.
	facts *typefacts.Facts
	// kinds returns the group version kinds of an object type, and none for other types.
	kinds func(reflect.Type) []schema.GroupVersionKind
	// v3 selects the form of v3 documents. In v3, schemas contain defaults, and a reference with
	// further fields is in an allOf.
	v3 bool
	// enums reports whether schemas include the allowed values of fields.
	enums bool
	// schemas holds the models by name.
	schemas map[string]*spec.Schema
	// renamed maps names of custom models to their names in this document.
	renamed map[string]string
}

// Forms of documents, for newModels.
const (
	formV2 = false
	formV3 = true
)

// newModels returns models without schemas. See the fields of models.
func newModels(facts *typefacts.Facts, kinds func(reflect.Type) []schema.GroupVersionKind, v3, enums bool) *models {
	return &models{
		facts:   facts,
		kinds:   kinds,
		v3:      v3,
		enums:   enums,
		schemas: map[string]*spec.Schema{},
		renamed: map[string]string{},
	}
}

// refTo returns the reference to the model of a name.
func (m *models) refTo(name string) spec.Ref {
	if m.v3 {
		return spec.MustCreateRef("#/components/schemas/" + name)
	}
	return spec.MustCreateRef("#/definitions/" + name)
}

// modelRef returns a reference to the model of a struct. If the model does not exist, modelRef adds
// it.
func (m *models) modelRef(typ reflect.Type) spec.Schema {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	name := typename.ForType(typ)
	if m.schemas[name] == nil {
		s := &spec.Schema{}
		m.schemas[name] = s // before it is filled, because types may be recursive
		m.fillModel(s, typ)
	}
	return spec.Schema{SchemaProps: spec.SchemaProps{Ref: m.refTo(name)}}
}

// The following interfaces are implemented by API types.
type (
	// documented types return the descriptions of their fields by JSON name, and their own under
	// "".
	documented interface{ SwaggerDoc() map[string]string }
	// typed types define their JSON type.
	typed interface {
		OpenAPISchemaType() []string
		OpenAPISchemaFormat() string
	}
	// oneOf types are typed types that have several JSON types in v3.
	oneOf interface{ OpenAPIV3OneOfTypes() []string }
)

// fillModel fills the empty model of a struct.
func (m *models) fillModel(model *spec.Schema, typ reflect.Type) {
	value := reflect.New(typ).Elem().Interface()
	facts := m.factsOf(typ)
	doc := docOf(value)
	model.Description = doc[""]
	if facts.Doc != nil {
		model.Description = *facts.Doc
	}
	if gvks := m.kinds(typ); len(gvks) > 0 {
		model.AddExtension(extGVK, gvkList(gvks))
	}
	if facts.MapType != "" {
		model.AddExtension(extMapType, facts.MapType)
	}
	if len(facts.Union) > 0 {
		model.AddExtension(extUnions, facts.Union)
	}
	if definer, ok := value.(typed); ok {
		m.setDefinedType(model, definer)
		return
	}
	model.Type = spec.StringOrArray{"object"}
	m.addFields(model, typ)
}

// factsOf returns the facts of a type, which may be empty.
func (m *models) factsOf(typ reflect.Type) *typefacts.Type {
	if m.facts == nil {
		return &typefacts.Type{}
	}
	return m.facts.Type(fullName(typ))
}

// fullName returns the name of a type with its package path, as in typefacts.
func fullName(typ reflect.Type) string { return typ.PkgPath() + "." + typ.Name() }

// setDefinedType sets the JSON type that a type defines itself.
func (m *models) setDefinedType(model *spec.Schema, definer typed) {
	model.Format = definer.OpenAPISchemaFormat()
	if o, ok := definer.(oneOf); ok && m.v3 {
		for _, alternative := range o.OpenAPIV3OneOfTypes() {
			model.OneOf = append(model.OneOf, spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{alternative}}})
		}
		return
	}
	model.Type = definer.OpenAPISchemaType()
}

// addFields adds the fields of a struct, including the fields of embedded structs, to the
// properties of its model.
func (m *models) addFields(model *spec.Schema, typ reflect.Type) {
	facts := m.factsOf(typ)
	doc := docOf(reflect.New(typ).Elem().Interface())
	for i := 0; i < typ.NumField(); i++ {
		structField := typ.Field(i)
		name, options, _ := strings.Cut(structField.Tag.Get("json"), ",")
		isInlined := name == "" && structField.Anonymous
		switch {
		case name == "-" || !structField.IsExported():
		case isInlined:
			m.addFields(model, structField.Type)
		case name != "":
			hasOmitEmpty := slices.Contains(strings.Split(options, ","), "omitempty")
			m.addField(model, name, structField, hasOmitEmpty, facts.Field(name), doc[name])
		}
	}
}

// addField adds a field of a struct to the properties of its model. name is its name in JSON, doc its
// documentation unless the facts have another one.
func (m *models) addField(
	model *spec.Schema,
	name string,
	structField reflect.StructField,
	hasOmitEmpty bool,
	facts *typefacts.Field,
	doc string,
) {
	property := m.fieldSchema(structField.Type)
	property.Description = doc
	if facts.Doc != nil {
		property.Description = *facts.Doc
	}
	addMergeRules(&property, structField, facts)
	m.describeEnum(&property, structField.Type, facts)
	if m.v3 && m.facts != nil {
		property.Default = facts.Default
		if property.Default == nil {
			property.Default = zeroDefault(structField.Type, hasOmitEmpty)
		}
	}
	if model.Properties == nil {
		model.Properties = map[string]spec.Schema{}
	}
	model.Properties[name] = m.wrapRef(property)

	required := !hasOmitEmpty
	if facts.Required != nil {
		required = *facts.Required
	}
	if required {
		model.Required = append(model.Required, name)
	}
}

// addMergeRules adds the extensions that define how a patch or an apply merges a field.
func addMergeRules(property *spec.Schema, structField reflect.StructField, facts *typefacts.Field) {
	for name, value := range map[string]string{
		extPatchStrategy: structField.Tag.Get("patchStrategy"), extPatchMergeKey: structField.Tag.Get("patchMergeKey"),
		extListType: facts.ListType, extMapType: facts.MapType,
	} {
		if value != "" {
			property.AddExtension(name, value)
		}
	}
	if len(facts.Keys) > 0 {
		property.AddExtension(extListKeys, slices.Compact(slices.Clone(facts.Keys))) // some types repeat a key
	}
}

// describeEnum adds the possible values of a field with an enum type to its description.
func (m *models) describeEnum(property *spec.Schema, typ reflect.Type, facts *typefacts.Field) {
	values := m.enumValues(typ)
	if len(values) == 0 || facts.HideEnum {
		return
	}
	var builder strings.Builder
	builder.WriteString(property.Description)
	if builder.Len() > 0 {
		builder.WriteString("\n\n")
	}
	builder.WriteString("Possible enum values:")
	for _, value := range values {
		builder.WriteString(strings.TrimRight(fmt.Sprintf("\n - `%q` %s", value.Text, value.Doc), " "))
	}
	property.Description = builder.String()
}

// wrapRef returns a schema in which a reference does not hide other fields. In v3, a $ref hides all
// fields beside it, so wrapRef moves it into an allOf.
func (m *models) wrapRef(s spec.Schema) spec.Schema {
	ref := s.Ref
	hasOtherFields := s.Description != "" || s.Default != nil || len(s.Extensions) > 0
	if !m.v3 || ref.String() == "" || !hasOtherFields {
		return s
	}
	s.Ref = spec.Ref{}
	s.AllOf = []spec.Schema{{SchemaProps: spec.SchemaProps{Ref: ref}}}
	return s
}

// docOf returns the documentation of a type by JSON name, or nil.
func docOf(value any) map[string]string {
	if d, ok := value.(documented); ok {
		return d.SwaggerDoc()
	}
	return nil
}

// gvkList returns the value of the extension extGVK of a model.
func gvkList(gvks []schema.GroupVersionKind) []any {
	out := make([]any, 0, len(gvks))
	for _, gvk := range gvks {
		out = append(out, gvkMap(gvk))
	}
	return out
}

// gvkMap returns the value of the extension extGVK of an operation.
func gvkMap(gvk schema.GroupVersionKind) map[string]any {
	return map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind}
}

// fieldSchema returns the schema of the type of a field, a list element or a map value. For a
// struct, it adds the model and returns a reference to it.
func (m *models) fieldSchema(typ reflect.Type) spec.Schema {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	switch typ.Kind() {
	case reflect.Struct:
		return m.modelRef(typ)
	case reflect.Slice, reflect.Array:
		if typ.Elem().Kind() == reflect.Uint8 {
			return *spec.StrFmtProperty("byte")
		}
		items := m.elementSchema(typ.Elem())
		return *spec.ArrayProperty(&items)
	case reflect.Map:
		items := m.elementSchema(typ.Elem())
		return *spec.MapProperty(&items)
	case reflect.Bool:
		return *spec.BooleanProperty()
	case reflect.String:
		s := *spec.StringProperty()
		for _, v := range m.enumValues(typ) {
			s.Enum = append(s.Enum, v.Text)
		}
		return s
	case reflect.Int64:
		return *spec.Int64Property()
	case reflect.Float32, reflect.Float64:
		return *spec.Float64Property()
	case reflect.Interface:
		return spec.Schema{}
	default:
		return *spec.Int32Property()
	}
}

// elementSchema returns the schema of the elements of a list or map.
func (m *models) elementSchema(typ reflect.Type) spec.Schema {
	s := m.fieldSchema(typ)
	if m.v3 && m.facts != nil {
		const hasOmitEmpty = false // elements are never omitted
		s.Default = zeroDefault(typ, hasOmitEmpty)
	}
	return m.wrapRef(s)
}

// enumValues returns the values of a string type, or nil if any value is allowed.
func (m *models) enumValues(typ reflect.Type) []typefacts.Value {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if m.facts == nil || !m.enums || typ.Kind() != reflect.String {
		return nil
	}
	return m.facts.Enum(fullName(typ))
}

// zeroDefault returns the default in the schema of a field without a declared default: the JSON
// value of its zero value. It returns nil if the zero value is encoded as null or omitted.
func zeroDefault(typ reflect.Type, hasOmitEmpty bool) any {
	if typ.Kind() == reflect.Pointer || reflect.PointerTo(typ).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil
	}
	switch typ.Kind() {
	case reflect.Struct:
		if typ.NumField() == 1 && typ.Field(0).Anonymous {
			return zeroDefault(typ.Field(0).Type, hasOmitEmpty)
		}
		return map[string]any{}
	case reflect.Slice, reflect.Array, reflect.Map, reflect.Interface:
		return nil
	}
	if hasOmitEmpty {
		return nil
	}
	return reflect.Zero(typ).Interface()
}
