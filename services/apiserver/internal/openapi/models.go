package openapi

import (
	"reflect"
	"slices"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"binnacle/services/apiserver/internal/apis/typename"
)

// Extensions of Kubernetes.
const (
	extGVK           = "x-kubernetes-group-version-kind"
	extAction        = "x-kubernetes-action"
	extListType      = "x-kubernetes-list-type"
	extListKeys      = "x-kubernetes-list-map-keys"
	extMapType       = "x-kubernetes-map-type"
	extPatchStrategy = "x-kubernetes-patch-strategy"
	extPatchMergeKey = "x-kubernetes-patch-merge-key"
)

// models makes the schemas of Go types, each with those that it refers to. One
// is used for one document.
type models struct {
	marks *marks
	// kinds are the group version kinds of an object type; none of others.
	kinds func(reflect.Type) []schema.GroupVersionKind
	// v3 documents put a reference that has something beside it into an allOf,
	// and have defaults.
	v3      bool
	schemas map[string]*spec.Schema
}

func newModels(m *marks, kinds func(reflect.Type) []schema.GroupVersionKind, v3 bool) *models {
	return &models{marks: m, kinds: kinds, v3: v3, schemas: map[string]*spec.Schema{}}
}

// refTo is where a model stands in the document.
func (m *models) refTo(name string) spec.Ref {
	if m.v3 {
		return spec.MustCreateRef("#/components/schemas/" + name)
	}
	return spec.MustCreateRef("#/definitions/" + name)
}

// ref returns a reference to the model of a struct, which is made if it is new.
func (m *models) ref(t reflect.Type) spec.Schema {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name := typename.Of(t)
	if m.schemas[name] == nil {
		s := &spec.Schema{}
		m.schemas[name] = s // before its fields: types may contain themselves
		m.build(s, name, t)
	}
	return spec.Schema{SchemaProps: spec.SchemaProps{Ref: m.refTo(name)}}
}

// documented is how types of Kubernetes carry their documentation.
type documented interface{ SwaggerDoc() map[string]string }

// typed types say themselves what they are in JSON; oneOf types are one of
// several in v3.
type (
	typed interface {
		OpenAPISchemaType() []string
		OpenAPISchemaFormat() string
	}
	oneOf interface{ OpenAPIV3OneOfTypes() []string }
)

func (m *models) build(s *spec.Schema, name string, t reflect.Type) {
	value := reflect.New(t).Elem().Interface()
	doc := docOf(t, value)
	s.Description = doc[""]
	if gvks := m.kinds(t); len(gvks) > 0 {
		s.AddExtension(extGVK, gvkList(gvks))
	}
	if ty, ok := value.(typed); ok {
		m.describe(s, ty)
		return
	}
	s.Type = spec.StringOrArray{"object"}
	if k := m.marks.ofType(name); k.mapType != "" {
		s.AddExtension(extMapType, k.mapType)
	}
	m.fields(s, name, t, doc)
	sort.Strings(s.Required)
}

// describe fills in what a type says of itself.
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

// fields adds the properties of a struct; those of embedded structs are its
// own.
func (m *models) fields(s *spec.Schema, model string, t reflect.Type, doc map[string]string) {
	for i := 0; i < t.NumField(); i++ {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		if name == "" && f.Anonymous {
			m.fields(s, model, f.Type, docOf(f.Type, reflect.New(f.Type).Elem().Interface()))
			continue
		}
		if name == "" {
			continue
		}
		p := m.value(f.Type)
		m.annotate(&p, f, m.marks.ofField(model, f, name))
		p.Description = doc[name]
		if s.Properties == nil {
			s.Properties = map[string]spec.Schema{}
		}
		s.Properties[name] = m.wrapped(p)
		omitted := slices.Contains(strings.Split(options, ","), "omitempty")
		if !omitted && !optional[model+"."+name] {
			s.Required = append(s.Required, name)
		}
	}
}

// annotate adds what a field says beyond its type.
func (m *models) annotate(p *spec.Schema, f reflect.StructField, k mark) {
	if s := f.Tag.Get("patchStrategy"); s != "" {
		p.AddExtension(extPatchStrategy, s)
	}
	if s := f.Tag.Get("patchMergeKey"); s != "" {
		p.AddExtension(extPatchMergeKey, s)
	}
	if k.listType != "" && p.Type.Contains("array") {
		p.AddExtension(extListType, k.listType)
		if len(k.keys) > 0 {
			p.AddExtension(extListKeys, k.keys)
		}
	}
	if k.mapType != "" {
		p.AddExtension(extMapType, k.mapType)
	}
	if m.v3 && k.fallback != nil {
		p.Default = k.fallback
	}
}

// wrapped makes a reference with something beside it valid in v3, where it
// would hide the rest.
func (m *models) wrapped(s spec.Schema) spec.Schema {
	ref := s.Ref
	if !m.v3 || ref.String() == "" || s.Description == "" && s.Default == nil && len(s.Extensions) == 0 {
		return s
	}
	s.Ref = spec.Ref{}
	s.AllOf = []spec.Schema{{SchemaProps: spec.SchemaProps{Ref: ref}}}
	return s
}

// value is the schema of a field's type.
func (m *models) value(t reflect.Type) spec.Schema {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Struct:
		return m.ref(t)
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return *spec.StrFmtProperty("byte")
		}
		items := m.value(t.Elem())
		if m.v3 && items.Ref.String() != "" {
			items.Default = map[string]any{}
			items = m.wrapped(items)
		}
		return *spec.ArrayProperty(&items)
	case reflect.Map:
		items := m.value(t.Elem())
		return *spec.MapProperty(&items)
	case reflect.Bool:
		return *spec.BooleanProperty()
	case reflect.String:
		return *spec.StringProperty()
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

// docOf is the documentation of a type by JSON name; nil when it has none of
// its own.
func docOf(t reflect.Type, value any) map[string]string {
	if doc := specialDocs[typename.Of(t)]; doc != "" {
		return map[string]string{"": doc}
	}
	if d, ok := value.(documented); ok {
		return d.SwaggerDoc()
	}
	return nil
}

// gvkList is the form of the extension on a model.
func gvkList(gvks []schema.GroupVersionKind) []any {
	out := make([]any, 0, len(gvks))
	for _, g := range gvks {
		out = append(out, gvkMap(g))
	}
	return out
}

// gvkMap is the form of the extension on an operation.
func gvkMap(g schema.GroupVersionKind) map[string]any {
	return map[string]any{"group": g.Group, "version": g.Version, "kind": g.Kind}
}
