package openapi

import (
	"net/http"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// rootPath describes a path that is only read.
func rootPath(at, id, description, tagName string, result any) path {
	return path{path: at, operations: []operation{{
		method: http.MethodGet, id: id, description: description, tag: tagName, result: modelOf(result),
		codes: []int{http.StatusOK}, consumes: objectForm, produces: objectForm,
	}}}
}

// customEntry describes a group version of custom resources.
func (s *Service) customEntry(g Group) *entry {
	e := s.entry(apiPath(g.GroupVersion), func() []path {
		d := &describer{gv: g.GroupVersion, params: s.params(), newObject: s.scheme.New, custom: true}
		return d.group(sortedKinds(g.Kinds))
	}, func(m *models) map[string]*spec.Schema { return customSchemas(m, &g) })
	e.hash = g.Hash
	return e
}

// customSchemas are the models of custom resources and of their lists.
func customSchemas(m *models, g *Group) map[string]*spec.Schema {
	out := map[string]*spec.Schema{}
	for _, k := range g.Kinds {
		gvk := k.GVK()
		object := spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{"object"}}}
		if given := g.Schemas[k.Kind]; given != nil {
			object = *given
			if !m.v3 {
				object = pruned(object)
			}
		} else {
			object.AddExtension("x-kubernetes-preserve-unknown-fields", true)
		}
		withTypeMeta(m, &object, m.described(m.ref(reflect.TypeOf(metav1.ObjectMeta{})), objectMetaDoc), gvk)
		out[customName(gvk)] = &object

		list := &spec.Schema{SchemaProps: spec.SchemaProps{
			Type: spec.StringOrArray{"object"}, Description: k.Kind + "List is a list of " + k.Kind, Required: []string{"items"},
		}}
		item := spec.Schema{SchemaProps: spec.SchemaProps{Ref: m.refTo(customName(gvk))}}
		items := *spec.ArrayProperty(&item)
		items.Description = "List of " + k.Resource + ". More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
		list.Properties = map[string]spec.Schema{"items": items}
		listGVK := gvk
		listGVK.Kind += "List"
		withTypeMeta(m, list, m.described(m.ref(reflect.TypeOf(metav1.ListMeta{})), listMetaDoc), listGVK)
		out[customName(listGVK)] = list
	}
	return out
}

const (
	objectMetaDoc = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
	listMetaDoc   = "Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds"
)

// described puts a description beside a reference.
func (m *models) described(s spec.Schema, description string) spec.Schema {
	s.Description = description
	return m.wrapped(s)
}

// withTypeMeta adds what every object has to a schema; maps are copied, as the
// schema may be someone else's.
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

// pruned leaves out of a schema what v2 does not have.
func pruned(s spec.Schema) spec.Schema {
	s.OneOf, s.AnyOf, s.AllOf, s.Not = nil, nil, nil, nil
	s.Default = nil
	if s.Nullable {
		// A type would forbid the null.
		s.Nullable, s.Type, s.Items, s.Properties, s.AdditionalProperties = false, nil, nil, nil, nil
	}
	if preserve, _ := s.Extensions.GetBool("x-kubernetes-preserve-unknown-fields"); preserve {
		s.Items, s.Properties = nil, nil
		if slices.Contains(s.Type, "object") {
			s.Type = nil
		}
	}
	if s.Items != nil && s.Items.Schema != nil {
		items := pruned(*s.Items.Schema)
		s.Items = &spec.SchemaOrArray{Schema: &items}
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		items := pruned(*s.AdditionalProperties.Schema)
		s.AdditionalProperties = &spec.SchemaOrBool{Allows: true, Schema: &items}
	}
	if s.Properties != nil {
		properties := make(map[string]spec.Schema, len(s.Properties))
		for name, p := range s.Properties {
			properties[name] = pruned(p)
		}
		s.Properties = properties
	}
	return s
}
