package openapi

import (
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

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
func (s *Schemas) Custom(kind schema.GroupVersionKind, given *spec.Schema) *spec.Schema {
	return customSchema(s.models, given, kind)
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
