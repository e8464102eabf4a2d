package kind

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/validation/spec"
	smd "sigs.k8s.io/structured-merge-diff/v4/schema"

	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// TestMergeSchemaMatchesKubeOpenAPI compares merge schemas with those that kube-openapi derives.
func TestMergeSchemaMatchesKubeOpenAPI(t *testing.T) {
	const resource = `"apiVersion":{"type":"string"},"kind":{"type":"string"},"metadata":{"$ref":"#/components/schemas/` + metadataType + `"}`
	for name, properties := range map[string]string{
		"nothing":          ``,
		"scalars":          `"a":{"type":"string"},"b":{"type":"integer"},"c":{"type":"number"},"d":{"type":"boolean"},"e":{"type":"string","default":"x"}`,
		"formats":          `"a":{"type":"string","format":"byte"},"b":{"type":"string","format":"ipv4"},"c":{"type":"string","format":"date-time"},"d":{"type":"string","format":"x"},"e":{"type":"integer","format":"int32"}`,
		"integer or text":  `"a":{"x-kubernetes-int-or-string":true}`,
		"any":              `"a":{"x-kubernetes-preserve-unknown-fields":true},"b":{"x-kubernetes-preserve-unknown-fields":true,"properties":{"c":{"type":"string"}}}`,
		"objects":          `"a":{"type":"object"},"b":{"type":"object","properties":{"c":{"type":"object"}}},"d":{"type":"object","x-kubernetes-map-type":"atomic","properties":{"e":{"type":"string"}}}`,
		"maps":             `"a":{"type":"object","additionalProperties":{"type":"string"}},"b":{"type":"object","additionalProperties":true},"c":{"type":"object","additionalProperties":{"type":"object","properties":{"d":{"type":"string"}}}}`,
		"lists":            `"a":{"type":"array","items":{"type":"string"}},"b":{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"set"},"c":{"type":"array","items":{"type":"object","properties":{"d":{"type":"string","format":"ipv4"}}},"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["d"]}`,
		"below preserved":  `"a":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"b":{"type":"object","properties":{"c":{"type":"string"}}},"d":{"type":"array","items":{"type":"object","properties":{"e":{"type":"string"}}}},"f":{"type":"object","additionalProperties":{"type":"object","properties":{"g":{"type":"string"}}}}}},"h":{"type":"object","properties":{"i":{"type":"string"}}}`,
		"preserved within": `"a":{"type":"object","properties":{"b":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"c":{"type":"object","properties":{"d":{"type":"string"}}}}},"e":{"type":"object","properties":{"f":{"type":"string"}}}}}`,
	} {
		for _, preserve := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				schema := new(apiextensionsv1.JSONSchemaProps)
				if err := json.Unmarshal([]byte(`{"type":"object","properties":{`+properties+`}}`), schema); err != nil {
					t.Fatal(err)
				}
				all := strings.TrimSuffix(properties+","+resource, ",")
				model := new(spec.Schema)
				if err := json.Unmarshal([]byte(`{"type":"object","properties":{`+strings.TrimPrefix(all, ",")+`}}`), model); err != nil {
					t.Fatal(err)
				}
				want, err := schemaconv.ToSchemaFromOpenAPI(map[string]*spec.Schema{"model": model}, preserve)
				if err != nil {
					t.Fatal(err)
				}
				got := sorted(newMergeSchema(schema, preserve).root.Inlined)
				atom, _ := want.Resolve(namedType("model"))
				atom = sorted(atom)
				if !reflect.DeepEqual(got, atom) {
					gotJSON, _ := json.Marshal(got)
					wantJSON, _ := json.Marshal(atom)
					t.Errorf("newMergeSchema({%s}, %t) = %s\nwant %s", properties, preserve, gotJSON, wantJSON)
				}
			})
		}
	}
}

// sorted returns a rule with its fields in a fixed order.
func sorted(atom smd.Atom) smd.Atom {
	if atom.Map != nil {
		rules := &smd.Map{ElementType: sortedRef(atom.Map.ElementType), ElementRelationship: atom.Map.ElementRelationship}
		for _, field := range atom.Map.Fields {
			rules.Fields = append(rules.Fields, smd.StructField{Name: field.Name, Type: sortedRef(field.Type), Default: field.Default})
		}
		slices.SortFunc(rules.Fields, func(x, y smd.StructField) int { return strings.Compare(x.Name, y.Name) })
		atom.Map = rules
	}
	if atom.List != nil {
		atom.List = &smd.List{
			ElementType:         sortedRef(atom.List.ElementType),
			ElementRelationship: atom.List.ElementRelationship,
			Keys:                atom.List.Keys,
		}
	}
	return atom
}

// sortedRef returns a type with its fields in a fixed order.
func sortedRef(ref smd.TypeRef) smd.TypeRef {
	if atom := ref.Inlined; atom.Scalar != nil && atom.Map != nil && len(atom.Map.Fields) == 0 {
		return namedType(deducedType) // kube-openapi expands it
	}
	ref.Inlined = sorted(ref.Inlined)
	return ref
}
