package apiextensions

import (
	"binnacle/services/apiserver/internal/crd/definition"
	"binnacle/services/apiserver/internal/registry"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// servedText implements registry.LazyField: schemas are stored in their served form.
func servedText(stored []byte, encode func([]byte) ([]byte, error)) ([]byte, bool) {
	summary, ok := definition.OutlineOf(stored)
	if !ok {
		return nil, false
	}
	served, err := encode(summary.Text)
	if err != nil {
		return nil, false
	}
	return summary.InsertSchemas(served)
}

// readLazily implements registry.LazyField.Decode.
func readLazily(data []byte, decode func([]byte) (registry.Object, error)) (registry.Object, bool) {
	summary, ok := definition.OutlineOfServed(data)
	if !ok {
		return nil, false
	}
	obj, err := decode(summary.Text)
	if err != nil {
		return nil, false
	}
	d, ok := obj.(*v1.CustomResourceDefinition)
	return d, ok && summary.AddSchemas(d)
}
