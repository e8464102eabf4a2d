package openapi

import (
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Schemas makes schemas of kinds one by one, as the documents of v3 have them, without
// how lists and maps are merged and without defaults. It keeps what it made, and is for
// one goroutine.
type Schemas struct {
	models *models
	scheme *runtime.Scheme
}

// NewSchemas makes schemas of the kinds that a scheme knows, and of custom ones.
func NewSchemas(scheme *runtime.Scheme) *Schemas {
	return &Schemas{newModels(nil, func(reflect.Type) []schema.GroupVersionKind { return nil }, true, false), scheme}
}

// BuiltIn is the schema of a kind that the scheme knows, nil of another one.
func (s *Schemas) BuiltIn(kind schema.GroupVersionKind) *spec.Schema {
	obj, err := s.scheme.New(kind)
	if err != nil {
		return nil
	}
	ref := s.models.ref(reflect.TypeOf(obj).Elem())
	return &ref
}

// Custom is the schema of a custom resource: what its definition gives, which may be
// nil, with what every object has.
func (s *Schemas) Custom(kind schema.GroupVersionKind, given *spec.Schema) *spec.Schema {
	return customSchema(s.models, given, kind)
}

// Follow returns what a reference in a schema stands for, and its name. What is no
// reference stands for itself and has none.
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
