package openapi

import (
	"cmp"
	"net/http"
	"reflect"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"binnacle/services/apiserver/internal/api/openapi/typefacts"
	"binnacle/services/apiserver/internal/registry"
)

// rootPath returns a path with only a GET operation.
func (s *Service) rootPath(at, id, description, tagName string, result any) path {
	return path{path: at, operations: []operation{{
		method: http.MethodGet, id: id, description: description, tag: tagName, result: modelOf(result),
		codes: []int{http.StatusOK}, consumes: s.forms.object, produces: s.forms.object,
	}}}
}

// customEntry returns the entry of a group version of custom resources.
func (s *Service) customEntry(g Group) *entry {
	e := &entry{path: apiPath(g.GroupVersion), hash: g.Hash, group: g.GroupVersion.Group}
	e.paths = func() []path {
		d := &describer{gv: g.GroupVersion, params: s.params(), forms: &s.forms, newObject: s.newObject, custom: true}
		return d.group(sortedKinds(g.Kinds))
	}
	e.schemas = func(m *models, r *SchemaCache) map[string]*spec.Schema { return customSchemas(m, r, &g) }
	for _, k := range g.Kinds {
		gvk := k.GVK()
		e.names = append(e.names, customName(gvk), customName(gvk.GroupVersion().WithKind(k.ListKind())))
	}
	e.doc = s.packer.newDocument(s.v3Slots, func(r *SchemaCache) ([]byte, error) {
		facts, err := r.typeFacts()
		if err != nil {
			return nil, err
		}
		m := newModels(facts, s.kindsOf(customVersions(facts)), true, s.enums)
		doc := newV3(e.paths(), m, e.schemas(m, r), spec.InfoProps{Title: "Kubernetes CRD Swagger", Version: "v0.1.0"})
		return doc.MarshalJSON()
	}, v3Proto)
	return e
}

// rename renames the custom models whose names are those of built-in models. No kind has an
// underscore in its name, so the new name is free.
func (e *entry) rename(m *models) {
	for _, name := range e.names {
		if m.schemas[name] != nil {
			m.renamed[name] = name + "_v2"
		}
	}
}

// addReferenced creates the models that operations refer to.
func (m *models) addReferenced(ps []path) {
	for _, p := range ps {
		for i := range p.operations {
			for _, subject := range []*model{p.operations[i].body, p.operations[i].result} {
				m.schemaOf(subject)
			}
		}
	}
}

// customName returns the name that a custom model has in the document.
func (m *models) customName(gvk schema.GroupVersionKind) string {
	name := customName(gvk)
	return cmp.Or(m.renamed[name], name)
}

// customSchemas returns the models of custom resources and of their lists.
func customSchemas(m *models, r *SchemaCache, g *Group) map[string]*spec.Schema {
	out := map[string]*spec.Schema{}
	for _, k := range g.Kinds {
		gvk := k.GVK()
		schema := g.Schemas(r, k.Kind)
		if g.Lenient[k.Kind] && !m.v3 {
			schema = nil
		}
		object := customSchema(m, schema, gvk)
		addSelectableFields(object, k)
		out[m.customName(gvk)] = object

		list := &spec.Schema{SchemaProps: spec.SchemaProps{
			Type: spec.StringOrArray{"object"}, Description: k.Kind + "List is a list of " + k.Kind, Required: []string{"items"},
		}}
		itemRef := spec.Schema{SchemaProps: spec.SchemaProps{Ref: m.refTo(m.customName(gvk))}}
		items := *spec.ArrayProperty(&itemRef)
		items.Description = "List of " + k.Resource + ". More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
		list.Properties = map[string]spec.Schema{"items": items}
		listGVK := gvk
		listGVK.Kind = k.ListKind()
		withTypeMeta(m, list, m.described(m.ref(reflect.TypeOf(metav1.ListMeta{})), listMetaDoc), listGVK)
		addSelectableFields(list, k)
		out[m.customName(listGVK)] = list
	}
	return out
}

// addSelectableFields adds the fields that field selectors may use.
func addSelectableFields(s *spec.Schema, k *registry.Kind) {
	var fields []any
	for _, f := range k.Presentation.Selectable {
		fields = append(fields, map[string]any{"fieldPath": f.Label})
	}
	if len(fields) > 0 {
		s.AddExtension(extSelectable, fields)
	}
}

// customSchema returns the model of a custom resource. The model of a resource without a schema has
// no properties. In v2, this also applies to a resource that keeps unknown fields.
func customSchema(m *models, specified *spec.Schema, gvk schema.GroupVersionKind) *spec.Schema {
	if specified == nil || !m.v3 && preservesUnknown(specified) {
		object := &spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{"object"}}}
		object.AddExtension(extGVK, gvkList([]schema.GroupVersionKind{gvk}))
		return object
	}
	object := *specified
	if !m.v3 {
		object = withoutUnsupported(object)
	}
	metadata := m.described(m.ref(reflect.TypeOf(metav1.ObjectMeta{})), objectMetaDoc)
	object = withEmbeddedMeta(m, object, metadata)
	withTypeMeta(m, &object, metadata, gvk)
	return &object
}

// preservesUnknown reports whether a schema keeps unknown fields.
func preservesUnknown(s *spec.Schema) bool {
	p, _ := s.Extensions.GetBool("x-kubernetes-preserve-unknown-fields")
	return p
}

// Descriptions of the fields of embedded resources.
const (
	embeddedVersionDoc = "apiVersion defines the versioned schema of this representation of an object. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources"
	embeddedKindDoc    = "kind is a string value representing the type of this object. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds"
)

// withEmbeddedMeta adds type and metadata to the embedded resources in a schema. It copies what it
// changes.
func withEmbeddedMeta(m *models, s, metadata spec.Schema) spec.Schema {
	if s.Properties != nil {
		properties := make(map[string]spec.Schema, len(s.Properties)+3)
		for name, p := range s.Properties {
			properties[name] = withEmbeddedMeta(m, p, metadata)
		}
		s.Properties = properties
	}
	if s.Items != nil && s.Items.Schema != nil {
		items := withEmbeddedMeta(m, *s.Items.Schema, metadata)
		s.Items = &spec.SchemaOrArray{Schema: &items}
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		values := withEmbeddedMeta(m, *s.AdditionalProperties.Schema, metadata)
		s.AdditionalProperties = &spec.SchemaOrBool{Allows: true, Schema: &values}
	}
	if is, _ := s.Extensions.GetBool("x-kubernetes-embedded-resource"); !is || !m.v3 && preservesUnknown(&s) {
		return s
	}
	if s.Properties == nil {
		s.Properties = map[string]spec.Schema{}
	}
	version := *spec.StringProperty()
	version.Description = embeddedVersionDoc
	kind := *spec.StringProperty()
	kind.Description = embeddedKindDoc
	s.Properties["apiVersion"] = version
	s.Properties["kind"] = kind
	s.Properties["metadata"] = metadata
	s.Required = slices.Clone(s.Required)
	for _, name := range []string{"kind", "apiVersion"} {
		if !slices.Contains(s.Required, name) {
			s.Required = append(s.Required, name)
		}
	}
	return s
}

const (
	objectMetaDoc = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
	listMetaDoc   = "Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds"
)

// described adds a description to a reference.
func (m *models) described(s spec.Schema, description string) spec.Schema {
	s.Description = description
	return m.wrapped(s)
}

// withTypeMeta adds the fields of every object to a schema. It copies maps because the schema may
// be shared.
func withTypeMeta(m *models, s *spec.Schema, meta spec.Schema, gvk schema.GroupVersionKind) {
	properties := map[string]spec.Schema{}
	for name, p := range s.Properties {
		properties[name] = p
	}
	doc := metav1.TypeMeta{}.SwaggerDoc()
	for _, name := range []string{"apiVersion", "kind"} {
		p := *spec.StringProperty()
		p.Description = doc[name]
		properties[name] = p
	}
	properties["metadata"] = meta
	s.Properties = properties
	extensions := spec.Extensions{}
	for name, e := range s.Extensions {
		extensions[name] = e
	}
	s.Extensions = extensions
	s.AddExtension(extGVK, gvkList([]schema.GroupVersionKind{gvk}))
}

// withoutUnsupported returns a schema without the parts that v2 does not support.
func withoutUnsupported(s spec.Schema) spec.Schema {
	s.OneOf = nil
	s.AnyOf = nil
	s.AllOf = nil
	s.Not = nil
	s.Default = nil
	if s.Nullable {
		// A type would forbid null.
		s.Nullable = false
		s.Type = nil
		s.Items = nil
		s.Properties = nil
		s.AdditionalProperties = nil
	}
	if preserve, _ := s.Extensions.GetBool("x-kubernetes-preserve-unknown-fields"); preserve {
		s.Items = nil
		s.Properties = nil
		if slices.Contains(s.Type, "object") {
			s.Type = nil
		}
	}
	if s.Items != nil && s.Items.Schema != nil {
		items := withoutUnsupported(*s.Items.Schema)
		s.Items = &spec.SchemaOrArray{Schema: &items}
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		items := withoutUnsupported(*s.AdditionalProperties.Schema)
		s.AdditionalProperties = &spec.SchemaOrBool{Allows: true, Schema: &items}
	}
	if s.Properties != nil {
		properties := make(map[string]spec.Schema, len(s.Properties))
		for name, p := range s.Properties {
			properties[name] = withoutUnsupported(p)
		}
		s.Properties = properties
	}
	return s
}

// SchemaCache caches the sources of schemas while documents from the same sources are built: those of
// one group's versions. It is safe for concurrent use.
type SchemaCache struct {
	// facts returns the facts of types, read once for the documents of all groups. It is nil if
	// only one document is built.
	facts func() (*typefacts.Facts, error)

	mu     sync.Mutex
	cached map[any]any
}

// Memoize returns the result of open for a key. It calls open once per key. open must be fast.
func (r *SchemaCache) Memoize(key any, open func() any) any {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.cached[key]
	if !ok {
		if r.cached == nil {
			r.cached = map[any]any{}
		}
		v = open()
		r.cached[key] = v
	}
	return v
}

// typeFacts returns the facts of types.
func (r *SchemaCache) typeFacts() (*typefacts.Facts, error) {
	if r.facts == nil {
		return typefacts.Read()
	}
	return r.facts()
}

// readingByGroup returns one Reading per group, for entries that are grouped. It drops the Reading
// of the previous group.
type readingByGroup struct {
	facts func() (*typefacts.Facts, error)
	group string
	last  *SchemaCache
}

func newReadings() *readingByGroup { return &readingByGroup{facts: sync.OnceValues(typefacts.Read)} }

func (r *readingByGroup) of(e *entry) *SchemaCache {
	if r.last == nil || e.group != "" && e.group != r.group {
		r.group = e.group
		r.last = &SchemaCache{facts: r.facts}
	}
	return r.last
}
