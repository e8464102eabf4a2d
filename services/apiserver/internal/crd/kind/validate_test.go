package kind_test

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/crd/kind"
	"binnacle/services/apiserver/internal/crd/rules"
	"binnacle/services/apiserver/internal/registry"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// scaledKind returns the kind of a definition with status, scale and a schema.
func scaledKind(t *testing.T, schema string) *registry.Kind {
	t.Helper()
	read := func() (*v1.CustomResourceDefinition, error) {
		var s v1.JSONSchemaProps
		err := json.Unmarshal([]byte(schema), &s)
		return &v1.CustomResourceDefinition{Spec: v1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: v1.NamespaceScoped,
			Versions: []v1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true, Schema: &v1.CustomResourceValidation{OpenAPIV3Schema: &s},
				Subresources: &v1.CustomResourceSubresources{
					Status: &v1.CustomResourceSubresourceStatus{},
					Scale:  &v1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.n", StatusReplicasPath: ".status.n"},
				},
			}},
		}}, err
	}
	d, err := kind.Read(read, read)
	if err != nil {
		t.Fatal(err)
	}
	return (&kind.Maker{Rules: rules.NewCompiler()}).All(d)[0]
}

// TestScaleOfWrites: writes validate only the parts of the scale that they change. A spec from
// before the scale subresource does not block status updates.
func TestScaleOfWrites(t *testing.T) {
	k := scaledKind(t, `{"type":"object","properties":{"spec":{"type":"object","properties":{"n":{"type":"integer"}}},"status":{"type":"object","properties":{"n":{"type":"integer"}}}}}`)
	const text = `{"spec":{"n":-1},"status":{"n":-2}}`
	spec, status := ".spec.n: Invalid value: -1: should be a non-negative integer", ".status.n: Invalid value: -2: should be a non-negative integer"
	for sub, want := range map[string][]string{"": {spec, status}, "scale": {spec, status}, "status": {status}} {
		errs := k.Document.Validate(t.Context(), registry.DocumentWrite{Object: atomicType(t, []byte(text)), Text: []byte(text), Old: []byte(`{"spec":{"n":-1}}`), Subresource: sub})
		same(t, sub, errs, want)
	}
}

func same(t *testing.T, name string, errs field.ErrorList, want []string) {
	t.Helper()
	if len(errs) != len(want) {
		t.Errorf("%q: got %v, want %q", name, errs, want)
		return
	}
	for i := range want {
		if errs[i].Error() != want[i] {
			t.Errorf("%q: got %v, want %q", name, errs, want)
		}
	}
}
