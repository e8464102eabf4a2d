package openapi

import (
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

// OpenAPI extensions of Kubernetes.
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

// models builds the schemas of Go types and of the types that they refer to. It is used for one
// document.
type models struct {
	// facts holds the annotations in the source of types. It is nil for schemas with only the shape
	// of types.
	facts *typefacts.Facts
	// kinds returns the group version kinds of an object type, and none for other types.
	kinds func(reflect.Type) []schema.GroupVersionKind
	// v3 documents wrap a reference with other fields in an allOf, and contain defaults.
	v3 bool
	// enums includes the allowed values of fields.
	enums   bool
	schemas map[string]*spec.Schema
	// renamed maps names of custom models to their names in this document.
	renamed map[string]string
}

func newModels(facts *typefacts.Facts, kinds func(reflect.Type) []schema.GroupVersionKind, v3, enums bool) *models {
	return &models{facts: facts, kinds: kinds, v3: v3, enums: enums, schemas: map[string]*spec.Schema{}, renamed: map[string]string{}}
}

// refTo returns the reference to a model in the document.
func (m *models) refTo(name string) spec.Ref {
	if m.v3 {
		return spec.MustCreateRef("#/components/schemas/" + name)
	}
	return spec.MustCreateRef("#/definitions/" + name)
}

// ref returns a reference to the model of a struct. It builds a new model.
func (m *models) ref(t reflect.Type) spec.Schema {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name := typename.ForType(t)
	if m.schemas[name] == nil {
		s := &spec.Schema{}
		m.schemas[name] = s // before its fields, because types may be recursive
		m.build(s, name, t)
	}
	return spec.Schema{SchemaProps: spec.SchemaProps{Ref: m.refTo(name)}}
}

// documented is implemented by types that carry their documentation.
type documented interface{ SwaggerDoc() map[string]string }

// typed is implemented by types that define their JSON type. oneOf is implemented by types that
// have several in v3.
type (
	typed interface {
		OpenAPISchemaType() []string
		OpenAPISchemaFormat() string
	}
	oneOf interface{ OpenAPIV3OneOfTypes() []string }
)

// build fills the model of a struct.
func (m *models) build(s *spec.Schema, name string, t reflect.Type) {
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
		m.describe(s, ty)
		return
	}
	s.Type = spec.StringOrArray{"object"}
	m.fields(s, t)
}

// factsOf returns the facts of a type.
func (m *models) factsOf(t reflect.Type) *typefacts.Type {
	if m.facts == nil {
		return &typefacts.Type{}
	}
	return m.facts.Type(fullName(t))
}

func fullName(t reflect.Type) string { return t.PkgPath() + "." + t.Name() }

// describe sets the JSON type that a type defines.
func (m *models) describe(s *spec.Schema, ty typed) {
	s.Format = ty.OpenAPISchemaFormat()
	if o, ok := ty.(oneOf); ok && m.v3 {
		for _, alternative := range o.OpenAPIV3OneOfTypes() {
			s.OneOf = append(s.OneOf, spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{alternative}}})
		}
		return
	}
	s.Type = ty.OpenAPISchemaType()
}

// fields adds the properties of a struct, including those of embedded structs.
func (m *models) fields(s *spec.Schema, t reflect.Type) {
	facts, doc := m.factsOf(t), docOf(reflect.New(t).Elem().Interface())
	for i := 0; i < t.NumField(); i++ {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		if name == "" && f.Anonymous {
			m.fields(s, f.Type)
			continue
		}
		if name == "" {
			continue
		}
		said := facts.Field(name)
		omitted := slices.Contains(strings.Split(options, ","), "omitempty")
		p := m.value(f.Type)
		p.Description = doc[name]
		if said.Doc != nil {
			p.Description = *said.Doc
		}
		m.annotate(&p, f, said)
		m.choose(&p, f.Type, said)
		if m.v3 && m.facts != nil {
			p.Default = said.Default
			if p.Default == nil {
				p.Default = zero(f.Type, omitted)
			}
		}
		if s.Properties == nil {
			s.Properties = map[string]spec.Schema{}
		}
		s.Properties[name] = m.wrapped(p)
		if required := !omitted; required && said.Required == nil || said.Required != nil && *said.Required {
			s.Required = append(s.Required, name)
		}
	}
}

// annotate adds the merge rules of a field.
func (m *models) annotate(p *spec.Schema, f reflect.StructField, said *typefacts.Field) {
	for name, value := range map[string]string{
		extPatchStrategy: f.Tag.Get("patchStrategy"), extPatchMergeKey: f.Tag.Get("patchMergeKey"),
		extListType: said.ListType, extMapType: said.MapType,
	} {
		if value != "" {
			p.AddExtension(name, value)
		}
	}
	if len(said.Keys) > 0 {
		p.AddExtension(extListKeys, slices.Compact(slices.Clone(said.Keys))) // some types repeat a key
	}
}

// choose adds the values of a field's enum to its description.
func (m *models) choose(p *spec.Schema, t reflect.Type, said *typefacts.Field) {
	values := m.enum(t)
	if len(values) == 0 || said.HideEnum {
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

// wrapped makes a reference with other fields valid in v3, where a reference hides them.
func (m *models) wrapped(s spec.Schema) spec.Schema {
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

// gvkList returns the value of the extension on a model.
func gvkList(gvks []schema.GroupVersionKind) []any {
	out := make([]any, 0, len(gvks))
	for _, g := range gvks {
		out = append(out, gvkMap(g))
	}
	return out
}

// gvkMap returns the value of the extension on an operation.
func gvkMap(g schema.GroupVersionKind) map[string]any {
	return map[string]any{"group": g.Group, "version": g.Version, "kind": g.Kind}
}

// customName returns the name of a custom resource's model.
func customName(gvk schema.GroupVersionKind) string {
	return typename.Friendly(gvk.Group+"/"+gvk.Version) + "." + gvk.Kind
}

// nameParts returns the parts of a group's name without the platform's own domain. The core group,
// which has no name, is called core.
func nameParts(group string) []string {
	if group == "" {
		return []string{"core"}
	}
	return strings.FieldsFunc(strings.TrimSuffix(group, "."+api.Domain), func(r rune) bool { return r == '.' || r == '-' })
}

// camelCase joins words as in RbacAuthorization.
func camelCase(words []string) string {
	var b strings.Builder
	for _, w := range words {
		b.WriteString(title(w))
	}
	return b.String()
}

func title(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// operationID returns the id of an operation, as in listCoreV1PodForAllNamespaces. The subject follows
// the verb and the group version; it has no hyphens and starts with a capital letter.
func operationID(verb string, gv schema.GroupVersion, subject string) string {
	return verb + camelCase(nameParts(gv.Group)) + title(gv.Version) + camelCase(strings.Split(subject, "-"))
}

// tag returns the tag of a group version's operations, as in rbacAuthorization_v1.
func tag(group, version string) string {
	w := nameParts(group)
	name := w[0] + camelCase(w[1:])
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

// Schemas builds schemas of single kinds as in v3 documents, but without merge rules and defaults.
// It caches them and is not safe for concurrent use.
type Schemas struct {
	models *models
	scheme *runtime.Scheme
}

// NewSchemas returns the schemas of a scheme's kinds and of custom ones.
func NewSchemas(scheme *runtime.Scheme) *Schemas {
	return &Schemas{newModels(nil, func(reflect.Type) []schema.GroupVersionKind { return nil }, true, false), scheme}
}

// BuiltIn returns the schema of a kind in the scheme, or nil.
func (s *Schemas) BuiltIn(kind schema.GroupVersionKind) *spec.Schema {
	obj, err := s.scheme.New(kind)
	if err != nil {
		return nil
	}
	ref := s.models.ref(reflect.TypeOf(obj).Elem())
	return &ref
}

// Custom returns the schema of a custom resource: the schema of its definition, which may be nil,
// with the fields of every object.
func (s *Schemas) Custom(kind schema.GroupVersionKind, specified *spec.Schema) *spec.Schema {
	return customSchema(s.models, specified, kind)
}

// Follow resolves a reference in a schema. It returns the target and its name. It returns any other
// schema itself, with an empty name.
func (s *Schemas) Follow(at *spec.Schema) (is *spec.Schema, name string) {
	ref := at.Ref.String()
	for i := range at.AllOf {
		if ref == "" {
			ref = at.AllOf[i].Ref.String()
		}
	}
	if ref == "" {
		return at, ""
	}
	name = ref[strings.LastIndexByte(ref, '/')+1:]
	return s.models.schemas[name], name
}
