package openapi

import (
	"cmp"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"binnacle/services/apiserver/internal/api/openapi/typefacts"
	"binnacle/services/apiserver/internal/registry"
)

// rootPath returns a path outside of group versions, which has only a GET operation. The arguments
// are the path, the id, description and tag of the operation, and an object of the response's type.
func (s *Service) rootPath(at, id, description, tagName string, result any) path {
	return path{path: at, operations: []operation{{
		method: http.MethodGet, id: id, description: description, tag: tagName, result: bodyOf(result),
		codes: []int{http.StatusOK}, consumes: s.media.object, produces: s.media.object,
	}}}
}

// customEntry returns the entry of a group version of custom resources.
func (s *Service) customEntry(group Group) *entry {
	out := &entry{path: apiPath(group.GroupVersion), hash: group.Hash, group: group.GroupVersion.Group}
	out.paths = func() []path {
		d := &describer{gv: group.GroupVersion, params: s.params(), media: &s.media, newObject: s.newObject, custom: true}
		return d.describeGroupVersion(sortedKinds(group.Kinds))
	}
	out.schemas = func(known *models, schemaCache *SchemaCache) map[string]*spec.Schema {
		return customSchemas(known, schemaCache, &group)
	}
	for _, k := range group.Kinds {
		gvk := k.GVK()
		out.names = append(out.names, customName(gvk), customName(gvk.GroupVersion().WithKind(k.ListKind())))
	}
	out.doc = s.packer.newDocument(s.v3Slots, func(schemaCache *SchemaCache) ([]byte, error) {
		facts, err := schemaCache.typeFacts()
		if err != nil {
			return nil, err
		}
		known := newModels(facts, s.kindsOf(customVersions(facts)), formV3, s.enums)
		doc := newV3(out.paths(), known, out.schemas(known, schemaCache), spec.InfoProps{Title: "Kubernetes CRD Swagger", Version: "v0.1.0"})
		return doc.MarshalJSON()
	}, v3Proto)
	return out
}

// renameConflicts renames the custom models of e whose names known already uses for built-in
// models. The new name has an underscore, which no kind has, so it cannot conflict.
func (e *entry) renameConflicts(known *models) {
	for _, name := range e.names {
		if known.schemas[name] != nil {
			known.renamed[name] = name + "_v2"
		}
	}
}

// addReferenced adds the models of the request and response bodies of operations.
func (m *models) addReferenced(paths []path) {
	for _, p := range paths {
		for i := range p.operations {
			m.bodySchema(p.operations[i].body)
			m.bodySchema(p.operations[i].result)
		}
	}
}

// customName returns the name of a custom model in the document.
func (m *models) customName(gvk schema.GroupVersionKind) string {
	name := customName(gvk)
	return cmp.Or(m.renamed[name], name)
}

// customSchemas returns the models of custom resources and of their lists, by name.
func customSchemas(known *models, schemaCache *SchemaCache, group *Group) map[string]*spec.Schema {
	out := map[string]*spec.Schema{}
	for _, kind := range group.Kinds {
		gvk := kind.GVK()
		specified := group.Schemas(schemaCache, kind.Kind)
		if group.Lenient[kind.Kind] && !known.v3 {
			specified = nil
		}
		object := customSchema(known, specified, gvk)
		addSelectableFields(object, kind)
		out[known.customName(gvk)] = object

		list := &spec.Schema{SchemaProps: spec.SchemaProps{
			Type: spec.StringOrArray{"object"}, Description: kind.Kind + "List is a list of " + kind.Kind, Required: []string{"items"},
		}}
		itemRef := spec.Schema{SchemaProps: spec.SchemaProps{Ref: known.refTo(known.customName(gvk))}}
		items := *spec.ArrayProperty(&itemRef)
		items.Description = "List of " + kind.Resource + ". More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
		list.Properties = map[string]spec.Schema{"items": items}
		listGVK := gvk
		listGVK.Kind = kind.ListKind()
		addTypeMeta(list, known.withDescription(known.modelRef(reflect.TypeOf(metav1.ListMeta{})), listMetaDoc), listGVK)
		addSelectableFields(list, kind)
		out[known.customName(listGVK)] = list
	}
	return out
}

// addSelectableFields adds the extension that lists the fields that field selectors may use.
func addSelectableFields(model *spec.Schema, kind *registry.Kind) {
	var fields []any
	for _, f := range kind.Presentation.Selectable {
		fields = append(fields, map[string]any{"fieldPath": f.Label})
	}
	if len(fields) > 0 {
		model.AddExtension(extSelectable, fields)
	}
}

// customSchema returns the model of a custom resource. specified is the schema in its definition,
// or nil. Without a schema, the model has no properties. In v2, neither has the model of a resource
// that keeps unknown fields.
func customSchema(known *models, specified *spec.Schema, gvk schema.GroupVersionKind) *spec.Schema {
	if specified == nil || !known.v3 && preservesUnknownFields(specified) {
		object := &spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{"object"}}}
		object.AddExtension(extGVK, gvkList([]schema.GroupVersionKind{gvk}))
		return object
	}
	object := *specified
	if !known.v3 {
		object = withoutUnsupported(object)
	}
	metadata := known.withDescription(known.modelRef(reflect.TypeOf(metav1.ObjectMeta{})), objectMetaDoc)
	object = withEmbeddedMeta(known, object, metadata)
	addTypeMeta(&object, metadata, gvk)
	return &object
}

// preservesUnknownFields reports whether a schema keeps unknown fields.
func preservesUnknownFields(s *spec.Schema) bool {
	preserves, _ := s.Extensions.GetBool("x-kubernetes-preserve-unknown-fields")
	return preserves
}

// Descriptions of the fields of embedded resources.
const (
	embeddedVersionDoc = "apiVersion defines the versioned schema of this representation of an object. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources"
	embeddedKindDoc    = "kind is a string value representing the type of this object. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds"
)

// withEmbeddedMeta returns a schema in which the embedded resources, at any depth, have apiVersion,
// kind and metadata. It copies the parts that it changes. metadata is the schema of metadata.
func withEmbeddedMeta(known *models, s, metadata spec.Schema) spec.Schema {
	if s.Properties != nil {
		properties := make(map[string]spec.Schema, len(s.Properties)+3)
		for name, p := range s.Properties {
			properties[name] = withEmbeddedMeta(known, p, metadata)
		}
		s.Properties = properties
	}
	if s.Items != nil && s.Items.Schema != nil {
		items := withEmbeddedMeta(known, *s.Items.Schema, metadata)
		s.Items = &spec.SchemaOrArray{Schema: &items}
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		values := withEmbeddedMeta(known, *s.AdditionalProperties.Schema, metadata)
		s.AdditionalProperties = &spec.SchemaOrBool{Allows: true, Schema: &values}
	}
	if is, _ := s.Extensions.GetBool("x-kubernetes-embedded-resource"); !is || !known.v3 && preservesUnknownFields(&s) {
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

// withDescription returns a reference with a description.
func (m *models) withDescription(ref spec.Schema, description string) spec.Schema {
	ref.Description = description
	return m.wrapRef(ref)
}

// addTypeMeta adds to a schema the fields that every object has, and the extension with the kind.
// It replaces the maps of object instead of changing them, because the schema may be shared.
func addTypeMeta(object *spec.Schema, meta spec.Schema, gvk schema.GroupVersionKind) {
	properties := map[string]spec.Schema{}
	maps.Copy(properties, object.Properties)
	doc := metav1.TypeMeta{}.SwaggerDoc()
	for _, name := range []string{"apiVersion", "kind"} {
		p := *spec.StringProperty()
		p.Description = doc[name]
		properties[name] = p
	}
	properties["metadata"] = meta
	object.Properties = properties
	extensions := spec.Extensions{}
	maps.Copy(extensions, object.Extensions)
	object.Extensions = extensions
	object.AddExtension(extGVK, gvkList([]schema.GroupVersionKind{gvk}))
}

// withoutUnsupported returns a schema without the parts that v2 does not support, at any depth. It
// copies the parts that it changes.
func withoutUnsupported(s spec.Schema) spec.Schema {
	s.OneOf = nil
	s.AnyOf = nil
	s.AllOf = nil
	s.Not = nil
	s.Default = nil
	if s.Nullable {
		// v2 has no nullable, and a type would forbid null.
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
		values := withoutUnsupported(*s.AdditionalProperties.Schema)
		s.AdditionalProperties = &spec.SchemaOrBool{Allows: true, Schema: &values}
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

// SchemaCache caches what the documents of one group have in common while they are built together:
// definitions of custom resources with several versions. It is safe for concurrent use. The zero
// value is for a single document.
type SchemaCache struct {
	// facts returns the facts of Go types, which it reads once for the documents of all groups. It
	// is nil if only one document is built.
	facts func() (*typefacts.Facts, error)

	mu     sync.Mutex
	cached map[any]any
}

// Memoize returns the result of open, which it calls once per key. open must be fast, because it is
// called with a lock.
func (c *SchemaCache) Memoize(key any, open func() any) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	value, ok := c.cached[key]
	if !ok {
		if c.cached == nil {
			c.cached = map[any]any{}
		}
		value = open()
		c.cached[key] = value
	}
	return value
}

// typeFacts returns the facts of Go types.
func (c *SchemaCache) typeFacts() (*typefacts.Facts, error) {
	if c.facts == nil {
		return typefacts.Read()
	}
	return c.facts()
}

// groupCaches returns the same SchemaCache for consecutive entries of one group. It keeps only the
// cache of the last group.
type groupCaches struct {
	facts func() (*typefacts.Facts, error)
	group string // of last
	last  *SchemaCache
}

func newGroupCaches() *groupCaches { return &groupCaches{facts: sync.OnceValues(typefacts.Read)} }

// cacheFor returns the cache for an entry. Entries of a group must follow each other.
func (c *groupCaches) cacheFor(current *entry) *SchemaCache {
	if c.last == nil || current.group != "" && current.group != c.group {
		c.group = current.group
		c.last = &SchemaCache{facts: c.facts}
	}
	return c.last
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
	const withoutEnums = false
	return &Schemas{models: newModels(nil, noKinds, formV3, withoutEnums), scheme: scheme}
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
