package apiextensions

import (
	"bytes"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/util/json"

	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// view is a definition in the form of its rules and error paths. The parts that all versions share
// are lifted above the versions and removed from them. So the version of a definition with one
// version has no schema.
type view struct {
	*v1.CustomResourceDefinitionSpec
	versions []v1.CustomResourceDefinitionVersion

	schema       *v1.CustomResourceValidation
	subresources *v1.CustomResourceSubresources
	columns      []v1.CustomResourceColumnDefinition
	fields       []v1.SelectableField
}

func viewOf(s *v1.CustomResourceDefinitionSpec) *view {
	v := &view{CustomResourceDefinitionSpec: s, versions: slices.Clone(s.Versions)}
	moveSharedPart(v, &v.schema, func(v *v1.CustomResourceDefinitionVersion) **v1.CustomResourceValidation { return &v.Schema })
	moveSharedPart(
		v,
		&v.subresources,
		func(v *v1.CustomResourceDefinitionVersion) **v1.CustomResourceSubresources { return &v.Subresources },
	)
	moveSharedPart(v, &v.columns, func(v *v1.CustomResourceDefinitionVersion) *[]v1.CustomResourceColumnDefinition {
		return &v.AdditionalPrinterColumns
	})
	moveSharedPart(v, &v.fields, func(v *v1.CustomResourceDefinitionVersion) *[]v1.SelectableField { return &v.SelectableFields })
	return v
}

// moveSharedPart moves a part that all versions share above them.
func moveSharedPart[T any](v *view, above *T, part func(*v1.CustomResourceDefinitionVersion) *T) {
	if len(v.versions) == 0 {
		return
	}
	first := *part(&v.versions[0])
	for i := range v.versions[1:] {
		if !alike.DeepEqual(*part(&v.versions[i+1]), first) {
			return
		}
	}
	*above = first
	var none T
	for i := range v.versions {
		*part(&v.versions[i]) = none
	}
}

// alike compares parts of definitions: nil equals empty, and JSON is compared by value.
var alike = conversion.EqualitiesOrDie(func(a, b v1.JSON) bool {
	if bytes.Equal(a.Raw, b.Raw) {
		return true
	}
	var av, bv any
	return json.Unmarshal(a.Raw, &av) == nil && json.Unmarshal(b.Raw, &bv) == nil && reflect.DeepEqual(av, bv)
})

// schemaOf returns the schema of a version, or nil.
func schemaOf(v *v1.CustomResourceValidation) *v1.JSONSchemaProps {
	if v == nil {
		return nil
	}
	return v.OpenAPIV3Schema
}

// hasStatus reports whether a version has the status subresource. Among versions with the same
// name, which are invalid, the first one counts.
func (v *view) hasStatus(name string) bool {
	i := slices.IndexFunc(v.Versions, func(v v1.CustomResourceDefinitionVersion) bool { return v.Name == name })
	return hasStatus(v.Versions[i].Subresources)
}

func hasStatus(s *v1.CustomResourceSubresources) bool { return s != nil && s.Status != nil }
