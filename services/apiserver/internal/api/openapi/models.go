package openapi

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"binnacle/libs/api"
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
	// enums includes the allowed values of fields.
	enums bool
	// schemas holds the models by name.
	schemas map[string]*spec.Schema
	// renamed maps names of custom models to their names in this document.
	renamed map[string]string
}

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
func (m *models) modelRef(t reflect.Type) spec.Schema {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name := typename.ForType(t)
	if m.schemas[name] == nil {
		s := &spec.Schema{}
		m.schemas[name] = s // before it is filled, because types may be recursive
		m.fillModel(s, t)
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

// fillModel fills the empty model s of a struct.
func (m *models) fillModel(s *spec.Schema, t reflect.Type) {
	value := reflect.New(t).Elem().Interface()
	facts := m.factsOf(t)
	doc := docOf(value)
	s.Description = doc[""]
	if facts.Doc != nil {
		s.Description = *facts.Doc
	}
	if gvks := m.kinds(t); len(gvks) > 0 {
		s.AddExtension(extGVK, gvkList(gvks))
	}
	if facts.MapType != "" {
		s.AddExtension(extMapType, facts.MapType)
	}
	if len(facts.Union) > 0 {
		s.AddExtension(extUnions, facts.Union)
	}
	if ty, ok := value.(typed); ok {
		m.setDefinedType(s, ty)
		return
	}
	s.Type = spec.StringOrArray{"object"}
	m.addFields(s, t)
}

// factsOf returns the facts of a type, which may be empty.
func (m *models) factsOf(t reflect.Type) *typefacts.Type {
	if m.facts == nil {
		return &typefacts.Type{}
	}
	return m.facts.Type(fullName(t))
}

// fullName returns the name of a type with its package path, as in typefacts.
func fullName(t reflect.Type) string { return t.PkgPath() + "." + t.Name() }

// setDefinedType sets the JSON type that a type defines itself.
func (m *models) setDefinedType(s *spec.Schema, ty typed) {
	s.Format = ty.OpenAPISchemaFormat()
	if o, ok := ty.(oneOf); ok && m.v3 {
		for _, alternative := range o.OpenAPIV3OneOfTypes() {
			s.OneOf = append(s.OneOf, spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{alternative}}})
		}
		return
	}
	s.Type = ty.OpenAPISchemaType()
}

// addFields adds the fields of a struct, including the fields of embedded structs, to the
// properties of s.
func (m *models) addFields(s *spec.Schema, t reflect.Type) {
	facts := m.factsOf(t)
	doc := docOf(reflect.New(t).Elem().Interface())
	for i := 0; i < t.NumField(); i++ {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		if name == "" && f.Anonymous {
			m.addFields(s, f.Type)
			continue
		}
		if name == "" {
			continue
		}
		fieldFacts := facts.Field(name)
		omitted := slices.Contains(strings.Split(options, ","), "omitempty")
		p := m.fieldSchema(f.Type)
		p.Description = doc[name]
		if fieldFacts.Doc != nil {
			p.Description = *fieldFacts.Doc
		}
		addMergeRules(&p, f, fieldFacts)
		m.describeEnum(&p, f.Type, fieldFacts)
		if m.v3 && m.facts != nil {
			p.Default = fieldFacts.Default
			if p.Default == nil {
				p.Default = zeroDefault(f.Type, omitted)
			}
		}
		if s.Properties == nil {
			s.Properties = map[string]spec.Schema{}
		}
		s.Properties[name] = m.wrapRef(p)
		required := !omitted
		if fieldFacts.Required != nil {
			required = *fieldFacts.Required
		}
		if required {
			s.Required = append(s.Required, name)
		}
	}
}

// addMergeRules adds the extensions that define how a patch or an apply merges a field.
func addMergeRules(p *spec.Schema, f reflect.StructField, facts *typefacts.Field) {
	for name, value := range map[string]string{
		extPatchStrategy: f.Tag.Get("patchStrategy"), extPatchMergeKey: f.Tag.Get("patchMergeKey"),
		extListType: facts.ListType, extMapType: facts.MapType,
	} {
		if value != "" {
			p.AddExtension(name, value)
		}
	}
	if len(facts.Keys) > 0 {
		p.AddExtension(extListKeys, slices.Compact(slices.Clone(facts.Keys))) // some types repeat a key
	}
}

// describeEnum adds the possible values of a field with an enum type to its description.
func (m *models) describeEnum(p *spec.Schema, t reflect.Type, facts *typefacts.Field) {
	values := m.enumValues(t)
	if len(values) == 0 || facts.HideEnum {
		return
	}
	var b strings.Builder
	b.WriteString(p.Description)
	if b.Len() > 0 {
		b.WriteString("\n\n")
	}
	b.WriteString("Possible enum values:")
	for _, v := range values {
		b.WriteString(strings.TrimRight(fmt.Sprintf("\n - `%q` %s", v.Text, v.Doc), " "))
	}
	p.Description = b.String()
}

// wrapRef returns a schema in which a reference does not hide other fields. In v3, a $ref hides all
// fields beside it, so wrapRef moves it into an allOf.
func (m *models) wrapRef(s spec.Schema) spec.Schema {
	ref := s.Ref
	if !m.v3 || ref.String() == "" || s.Description == "" && s.Default == nil && len(s.Extensions) == 0 {
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
	for _, g := range gvks {
		out = append(out, gvkMap(g))
	}
	return out
}

// gvkMap returns the value of the extension extGVK of an operation.
func gvkMap(g schema.GroupVersionKind) map[string]any {
	return map[string]any{"group": g.Group, "version": g.Version, "kind": g.Kind}
}

// customName returns the name of a custom resource's model: com.example.v1.Widget.
func customName(gvk schema.GroupVersionKind) string {
	return typename.Friendly(gvk.Group+"/"+gvk.Version) + "." + gvk.Kind
}

// nameParts returns the words of a group's name without the domain k8s.io. The core group, which
// has no name, is called core.
func nameParts(group string) []string {
	if group == "" {
		return []string{"core"}
	}
	return strings.FieldsFunc(strings.TrimSuffix(group, "."+api.Domain), func(r rune) bool { return r == '.' || r == '-' })
}

// camelCase joins words, such as rbac and authorization, to RbacAuthorization.
func camelCase(words []string) string {
	var b strings.Builder
	for _, w := range words {
		b.WriteString(title(w))
	}
	return b.String()
}

// title returns s with an upper-case first letter.
func title(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// operationID returns the id of an operation, such as listCoreV1PodForAllNamespaces for the verb
// list and the subject PodForAllNamespaces. It removes hyphens in the subject.
func operationID(verb string, gv schema.GroupVersion, subject string) string {
	return verb + camelCase(nameParts(gv.Group)) + title(gv.Version) + camelCase(strings.Split(subject, "-"))
}

// tag returns the tag of a group version's operations, such as rbacAuthorization_v1.
func tag(group, version string) string {
	words := nameParts(group)
	name := words[0] + camelCase(words[1:])
	if version != "" {
		name += "_" + version
	}
	return name
}

// apiPath returns the path of a group version without its leading slash.
func apiPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.Group + "/" + gv.Version
}

// Schemas builds the schemas of single kinds as in v3 documents, but without the facts of types,
// such as merge rules and defaults. It caches them and is not safe for concurrent use.
type Schemas struct {
	models *models
	scheme *runtime.Scheme
}

// NewSchemas returns a Schemas. scheme defines the Go types of built-in kinds.
func NewSchemas(scheme *runtime.Scheme) *Schemas {
	noKinds := func(reflect.Type) []schema.GroupVersionKind { return nil }
	return &Schemas{models: newModels(nil, noKinds, true, false), scheme: scheme}
}

// BuiltIn returns a reference to the schema of a kind, or nil if the kind is not in the scheme.
// Follow resolves it.
func (s *Schemas) BuiltIn(kind schema.GroupVersionKind) *spec.Schema {
	obj, err := s.scheme.New(kind)
	if err != nil {
		return nil
	}
	ref := s.models.modelRef(reflect.TypeOf(obj).Elem())
	return &ref
}

// Custom returns the schema of a custom resource: the schema in its definition, which may be nil,
// with the fields that every object has.
func (s *Schemas) Custom(kind schema.GroupVersionKind, specified *spec.Schema) *spec.Schema {
	return customSchema(s.models, specified, kind)
}

// Follow resolves a schema that is a reference, possibly in an allOf. It returns the target and its
// name. It returns any other schema unchanged with an empty name.
func (s *Schemas) Follow(from *spec.Schema) (target *spec.Schema, name string) {
	ref := from.Ref.String()
	for i := range from.AllOf {
		if ref == "" {
			ref = from.AllOf[i].Ref.String()
		}
	}
	if ref == "" {
		return from, ""
	}
	name = ref[strings.LastIndexByte(ref, '/')+1:]
	return s.models.schemas[name], name
}

// fieldSchema returns the schema of a type that a field, an element or a map value has. It adds the
// models of structs.
func (m *models) fieldSchema(t reflect.Type) spec.Schema {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Struct:
		return m.modelRef(t)
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return *spec.StrFmtProperty("byte")
		}
		items := m.elementSchema(t.Elem())
		return *spec.ArrayProperty(&items)
	case reflect.Map:
		items := m.elementSchema(t.Elem())
		return *spec.MapProperty(&items)
	case reflect.Bool:
		return *spec.BooleanProperty()
	case reflect.String:
		s := *spec.StringProperty()
		for _, v := range m.enumValues(t) {
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
func (m *models) elementSchema(t reflect.Type) spec.Schema {
	s := m.fieldSchema(t)
	if m.v3 && m.facts != nil {
		s.Default = zeroDefault(t, false)
	}
	return m.wrapRef(s)
}

// enumValues returns the values of a string type, or nil if any value is allowed.
func (m *models) enumValues(t reflect.Type) []typefacts.Value {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if m.facts == nil || !m.enums || t.Kind() != reflect.String {
		return nil
	}
	return m.facts.Enum(fullName(t))
}

// zeroDefault returns the JSON value of a field that is not set, as the default in its schema. It
// returns nil if such a field is null or omitted. omitted reports whether the field has omitempty.
func zeroDefault(t reflect.Type, omitted bool) any {
	if t.Kind() == reflect.Pointer || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil
	}
	switch t.Kind() {
	case reflect.Struct:
		if t.NumField() == 1 && t.Field(0).Anonymous {
			return zeroDefault(t.Field(0).Type, omitted)
		}
		return map[string]any{}
	case reflect.Slice, reflect.Array, reflect.Map, reflect.Interface:
		return nil
	}
	if omitted {
		return nil
	}
	return reflect.Zero(t).Interface()
}
