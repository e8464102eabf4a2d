package kind

import (
	"slices"

	smd "sigs.k8s.io/structured-merge-diff/v4/schema"
	"sigs.k8s.io/structured-merge-diff/v4/typed"

	apiextensionsv1 "binnacle/services/apiserver/internal/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/apis/mergetypes"
	"binnacle/services/apiserver/internal/customresource/tape"
)

// mergeRules say how the fields of a kind's objects are merged.
type mergeRules struct {
	schema *smd.Schema
	root   smd.TypeRef
}

// mergeType implements registry.Kind.
func (s *versionSchema) mergeType() typed.ParseableType {
	m := s.merge()
	if m.schema == nil {
		return typed.DeducedParseableType
	}
	return typed.ParseableType{Schema: m.schema, TypeRef: m.root}
}

const (
	metadataType = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
	// deduced is a value of any type, merged as the value tells.
	deduced = "__untyped_deduced_"
	// whole is a value of any type, merged as a whole.
	whole = "__untyped_atomic_"
)

// newMergeRules reads the list and map types of a schema (specification:
// "Merge-strategy markers").
func newMergeRules(s *apiextensionsv1.JSONSchemaProps, lenient bool) mergeRules {
	known := mergetypes.Known()
	if known == nil || s == nil {
		return mergeRules{}
	}
	root := atomOf(s, lenient)
	if root.Map == nil {
		return mergeRules{}
	}
	str := smd.Scalar("string")
	fields := slices.DeleteFunc(slices.Clone(root.Map.Fields), func(f smd.StructField) bool {
		return f.Name == "metadata" || f.Name == "apiVersion" || f.Name == "kind"
	})
	root.Map = &smd.Map{ElementType: root.Map.ElementType, ElementRelationship: root.Map.ElementRelationship, Fields: append(fields,
		smd.StructField{Name: "apiVersion", Type: smd.TypeRef{Inlined: smd.Atom{Scalar: &str}}},
		smd.StructField{Name: "kind", Type: smd.TypeRef{Inlined: smd.Atom{Scalar: &str}}},
		smd.StructField{Name: "metadata", Type: named(metadataType)},
	)}
	return mergeRules{schema: known, root: smd.TypeRef{Inlined: root}}
}

func named(name string) smd.TypeRef { return smd.TypeRef{NamedType: &name} }

func scalar(kind smd.Scalar) smd.Atom { return smd.Atom{Scalar: &kind} }

// refOf is the rule of a field.
func refOf(s *apiextensionsv1.JSONSchemaProps, lenient bool) smd.TypeRef {
	if s == nil || s.Type == "" && !s.XIntOrString && len(s.Properties) == 0 && s.Items == nil {
		return named(deduced)
	}
	return smd.TypeRef{Inlined: atomOf(s, lenient)}
}

func atomOf(s *apiextensionsv1.JSONSchemaProps, lenient bool) smd.Atom {
	switch {
	case s.XIntOrString:
		return scalar("untyped")
	case s.Type == "object" || len(s.Properties) > 0:
		return smd.Atom{Map: mapOf(s, lenient)}
	case s.Type == "array":
		return smd.Atom{List: listOf(s, lenient)}
	case s.Type == "integer" || s.Type == "number":
		return scalar("numeric")
	case s.Type == "boolean":
		return scalar("boolean")
	case s.Type == "string":
		return scalar("string")
	}
	return scalar("untyped")
}

func mapOf(s *apiextensionsv1.JSONSchemaProps, lenient bool) *smd.Map {
	m := &smd.Map{}
	if s.XMapType != nil && *s.XMapType == "atomic" {
		m.ElementRelationship = smd.Atomic
	}
	names := make([]string, 0, len(s.Properties))
	for name := range s.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		p := s.Properties[name]
		f := smd.StructField{Name: name, Type: refOf(&p, lenient)}
		if p.Default != nil {
			if v, err := decode(p.Default.Raw); err == nil {
				f.Default = v
			}
		}
		m.Fields = append(m.Fields, f)
	}
	switch {
	case s.XEmbeddedResource:
		m.Fields = slices.DeleteFunc(m.Fields, func(f smd.StructField) bool { return f.Name == "metadata" })
		m.Fields = append(m.Fields, smd.StructField{Name: "metadata", Type: named(metadataType)})
		m.ElementType = named(deduced)
	case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		m.ElementType = refOf(s.AdditionalProperties.Schema, lenient)
	case lenient, len(s.Properties) == 0, s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields,
		s.AdditionalProperties != nil && s.AdditionalProperties.Allows:
		m.ElementType = named(deduced)
	}
	return m
}

func listOf(s *apiextensionsv1.JSONSchemaProps, lenient bool) *smd.List {
	l := &smd.List{ElementRelationship: smd.Atomic, ElementType: named(whole)}
	if s.Items != nil && s.Items.Schema != nil {
		l.ElementType = refOf(s.Items.Schema, lenient)
	}
	if s.XListType == nil {
		return l
	}
	switch *s.XListType {
	case "set":
		l.ElementRelationship = smd.Associative
	case "map":
		l.ElementRelationship, l.Keys = smd.Associative, s.XListMapKeys
	}
	return l
}

func decode(raw []byte) (v any, err error) {
	d, err := tape.Parse(raw)
	if err != nil {
		return nil, err
	}
	defer d.Release()
	return d.Any(tape.Root), nil
}
