package kind_test

import (
	"encoding/json"
	"fmt"
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
		var props v1.JSONSchemaProps
		err := json.Unmarshal([]byte(schema), &props)
		return &v1.CustomResourceDefinition{Spec: v1.CustomResourceDefinitionSpec{
			Group: "example.com",
			Scope: v1.NamespaceScoped,
			Versions: []v1.CustomResourceDefinitionVersion{{
				Name:    "v1",
				Served:  true,
				Storage: true,
				Schema:  &v1.CustomResourceValidation{OpenAPIV3Schema: &props},
				Subresources: &v1.CustomResourceSubresources{
					Status: &v1.CustomResourceSubresourceStatus{},
					Scale:  &v1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.n", StatusReplicasPath: ".status.n"},
				},
			}},
		}}, err
	}
	definition, err := kind.NewCRD(read, read)
	if err != nil {
		t.Fatal(err)
	}
	return (&kind.Maker{Rules: rules.NewCompiler()}).All(definition)[0]
}

// TestStatusWriteIgnoresReplicasOfSpec checks that a write of the status does not validate the
// replicas of the spec, which may be from before the definition had a scale subresource.
func TestStatusWriteIgnoresReplicasOfSpec(t *testing.T) {
	kind := scaledKind(t, `{"type":"object","properties":{
		"spec":{"type":"object","properties":{"n":{"type":"integer"}}},
		"status":{"type":"object","properties":{"n":{"type":"integer"}}}}}`)
	const text = `{"spec":{"n":-1},"status":{"n":-2}}`
	const specError = ".spec.n: Invalid value: -1: should be a non-negative integer"
	const statusError = ".status.n: Invalid value: -2: should be a non-negative integer"
	for subresource, want := range map[string][]string{
		"":       {specError, statusError},
		"scale":  {specError, statusError},
		"status": {statusError},
	} {
		errs := kind.Document.Validate(t.Context(), registry.DocumentWrite{
			Object:      decodeDocument(t, []byte(text)),
			JSON:        []byte(text),
			OldJSON:     []byte(`{"spec":{"n":-1}}`),
			Subresource: subresource,
		})
		expectErrors(t, "subresource "+subresource, errs, want)
	}
}

// TestWholeFloatsAreNumbers checks that 1.0 is a number, although it is stored as 1. The texts are
// those of kube-apiserver.
func TestWholeFloatsAreNumbers(t *testing.T) {
	kind := scaledKind(t, `{"type":"object","properties":{
		"s":{"type":"string"},
		"i":{"type":"integer"},
		"l":{"type":"array","items":{"type":"boolean"}},
		"e":{"type":"number","enum":[1]}}}`)
	for text, want := range map[string][]string{
		`{"s":1.0}`:         {`s: Invalid value: "number": s in body must be of type string: "number"`},
		`{"s":1e2}`:         {`s: Invalid value: "number": s in body must be of type string: "number"`},
		`{"s":1}`:           {`s: Invalid value: "integer": s in body must be of type string: "integer"`},
		`{"l":[-0.0]}`:      {`l[0]: Invalid value: "number": l[0] in body must be of type boolean: "number"`},
		`{"e":-0.0}`:        {`e: Unsupported value: -0: supported values: "1"`},
		`{"i":1.0,"e":1.0}`: nil,
	} {
		obj := decodeDocument(t, []byte(text))
		stored, err := json.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		expectErrors(t, text, kind.Document.Validate(t.Context(), registry.DocumentWrite{Object: obj, JSON: stored}), want)
	}
}

// TestUnknownFieldsDependOnVersionOfBody checks that the schema of the version in a body decides
// which of its fields are unknown.
func TestUnknownFieldsDependOnVersionOfBody(t *testing.T) {
	version := func(name, field string) v1.CustomResourceDefinitionVersion {
		return v1.CustomResourceDefinitionVersion{
			Name:    name,
			Served:  true,
			Storage: name == "v1",
			Schema: &v1.CustomResourceValidation{
				OpenAPIV3Schema: &v1.JSONSchemaProps{Type: "object", Properties: map[string]v1.JSONSchemaProps{field: {Type: "string"}}},
			},
		}
	}
	read := func() (*v1.CustomResourceDefinition, error) {
		return &v1.CustomResourceDefinition{Spec: v1.CustomResourceDefinitionSpec{
			Group:    "example.com",
			Names:    v1.CustomResourceDefinitionNames{Kind: "Widget"},
			Versions: []v1.CustomResourceDefinitionVersion{version("v1", "a"), version("v2", "b")},
		}}, nil
	}
	definition, err := kind.NewCRD(read, read)
	if err != nil {
		t.Fatal(err)
	}
	objectKind := (&kind.Maker{Rules: rules.NewCompiler()}).All(definition)[0]
	for text, want := range map[string]string{
		`{"apiVersion":"example.com/v2","kind":"Widget","a":"x","b":"y"}`: "[a]",
		`{"apiVersion":"example.com/v3","kind":"Widget","a":"x","b":"y"}`: "[]",
		`{"apiVersion":"example.com/v2","kind":"Gadget","a":"x","b":"y"}`: "[]",
		`{"apiVersion":"other.com/v2","kind":"Widget","a":"x","b":"y"}`:   "[]",
	} {
		normalized, err := objectKind.Document.Normalize([]byte(text), registry.DocumentOptions{ReportUnknown: true, OtherVersion: true})
		if got := fmt.Sprint(normalized.Unknown); err != nil || got != want {
			t.Errorf("Normalize(%s): got unknown fields %s, error %v; want %s", text, got, err, want)
		}
	}
}

// TestMalformedMetadataIsRejectedOrDropped checks that malformed metadata is an error unless it is dropped.
func TestMalformedMetadataIsRejectedOrDropped(t *testing.T) {
	read := func() (*v1.CustomResourceDefinition, error) {
		return &v1.CustomResourceDefinition{Spec: v1.CustomResourceDefinitionSpec{
			Group: "example.com",
			Names: v1.CustomResourceDefinitionNames{Kind: "Widget"},
			Versions: []v1.CustomResourceDefinitionVersion{
				{
					Name:    "v1",
					Served:  true,
					Storage: true,
					Schema:  &v1.CustomResourceValidation{OpenAPIV3Schema: &v1.JSONSchemaProps{Type: "object"}},
				},
			},
		}}, nil
	}
	definition, err := kind.NewCRD(read, read)
	if err != nil {
		t.Fatal(err)
	}
	document := (&kind.Maker{Rules: rules.NewCompiler()}).All(definition)[0].Document
	const before, after = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{`, `"name":"n"}}`
	for _, malformed := range []string{`"creationTimestamp":"x",`, `"generation":1.5,`} {
		text := []byte(before + malformed + after)
		if _, err := document.Normalize(text, registry.DocumentOptions{}); err == nil {
			t.Errorf("Normalize(%s) = nil, want an error", text)
		}
		got, err := document.Normalize(text, registry.DocumentOptions{DropMalformedMetadata: true})
		if err != nil || string(got.Doc) != before+after {
			t.Errorf("Normalize(%s) without malformed metadata = %s, %v; want %s", text, got.Doc, err, before+after)
		}
	}
}

// expectErrors reports a difference between the errors of a case and the wanted texts.
func expectErrors(t *testing.T, name string, errs field.ErrorList, want []string) {
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
