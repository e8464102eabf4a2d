package openapi

import (
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

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
