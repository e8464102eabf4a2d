package v1beta1_test

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/registry/apis/apiextensions/v1beta1"
)

// TestStoredBytesEqualReference compares with recorded definitions in v1 and the bytes that the
// reference server stores for them.
func TestStoredBytesEqualReference(t *testing.T) {
	data, err := os.ReadFile("testdata/recorded.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		JSON  json.RawMessage
		Proto []byte
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	for i, test := range cases {
		definition := &v1.CustomResourceDefinition{}
		if err := json.Unmarshal(test.JSON, definition); err != nil {
			t.Fatal(err)
		}
		stored, err := v1beta1.FromV1(definition.DeepCopy()).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(stored, test.Proto) {
			t.Errorf("case %d: got %d stored bytes, want %d equal ones", i, len(stored), len(test.Proto))
		}
		read := &v1beta1.CustomResourceDefinition{}
		if err := read.Unmarshal(test.Proto); err != nil {
			t.Fatal(err)
		}
		back := v1beta1.ToV1(read)
		if definition.Spec.Scope == "" {
			definition.Spec.Scope = v1.NamespaceScoped
		}
		if !equality.Semantic.DeepEqual(definition, back) {
			a, _ := json.Marshal(definition)
			data, _ := json.Marshal(back)
			t.Errorf("case %d: read back\n got %s\nwant %s", i, data, a)
		}
	}
}

// TestCommonPartsAreStoredOnce checks that the stored form has values that are equal in all
// versions at its top level, and that the conversion back restores them without sharing memory
// between versions.
func TestCommonPartsAreStoredOnce(t *testing.T) {
	schema := func(typ string) *v1.CustomResourceValidation {
		return &v1.CustomResourceValidation{OpenAPIV3Schema: &v1.JSONSchemaProps{Type: typ}}
	}
	columns := []v1.CustomResourceColumnDefinition{{Name: "A", Type: "string", JSONPath: ".a"}}
	definition := &v1.CustomResourceDefinition{Spec: v1.CustomResourceDefinitionSpec{
		Scope: v1.ClusterScoped,
		Versions: []v1.CustomResourceDefinitionVersion{
			{
				Name:                     "v2",
				Served:                   true,
				Storage:                  true,
				Schema:                   schema("object"),
				AdditionalPrinterColumns: columns,
				SelectableFields:         []v1.SelectableField{{JSONPath: ".x"}},
			},
			{
				Name:                     "v1",
				Served:                   true,
				Schema:                   schema("object"),
				AdditionalPrinterColumns: columns,
				SelectableFields:         []v1.SelectableField{{JSONPath: ".y"}},
			},
		},
	}}
	source := v1beta1.FromV1(definition)
	if source.Spec.Version != "v2" || source.Spec.Validation == nil || source.Spec.Versions[0].Schema != nil || source.Spec.Versions[1].Schema != nil {
		t.Errorf("got spec %+v, want version v2 with the common schema at the top", source.Spec)
	}
	if len(source.Spec.AdditionalPrinterColumns) != 1 || source.Spec.SelectableFields != nil || len(source.Spec.Versions[1].SelectableFields) != 1 {
		t.Errorf("got spec %+v, want the common column at the top, the fields in the second version", source.Spec)
	}
	if definition.Spec.Versions[0].Schema == nil {
		t.Error("the served object was modified")
	}
	back := v1beta1.ToV1(source)
	if !reflect.DeepEqual(definition, back) {
		t.Errorf("got %v, want %v", back, definition)
	}
	if back.Spec.Versions[0].Schema == back.Spec.Versions[1].Schema {
		t.Error("two versions share a schema")
	}
}

// TestDefinitionsOfOlderServersAreRead reads definitions that older servers stored.
func TestDefinitionsOfOlderServersAreRead(t *testing.T) {
	var source v1beta1.CustomResourceDefinition
	text := `{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"CustomResourceDefinition","metadata":{"name":"ws.example.com"},
	"spec":{"group":"example.com","version":"v1","names":{"plural":"ws","kind":"W"},"additionalPrinterColumns":[{"name":"A","type":"string","JSONPath":".a"}],
	"conversion":{"strategy":"Webhook","webhookClientConfig":{"url":"https://h"}}}}`
	if err := json.Unmarshal([]byte(text), &source); err != nil {
		t.Fatal(err)
	}
	definition := v1beta1.ToV1(&source)
	want := v1.CustomResourceDefinitionSpec{
		Group: "example.com",
		Names: v1.CustomResourceDefinitionNames{Plural: "ws", Kind: "W"},
		Scope: v1.NamespaceScoped,
		Versions: []v1.CustomResourceDefinitionVersion{{
			Name:                     "v1",
			Served:                   true,
			Storage:                  true,
			AdditionalPrinterColumns: []v1.CustomResourceColumnDefinition{{Name: "A", Type: "string", JSONPath: ".a"}},
		}},
		Conversion: &v1.CustomResourceConversion{Strategy: v1.WebhookConverter, Webhook: &v1.WebhookConversion{
			ClientConfig: &v1.WebhookClientConfig{URL: ptr.To("https://h")}, ConversionReviewVersions: []string{"v1beta1"},
		}},
		PreserveUnknownFields: true,
	}
	if !reflect.DeepEqual(definition.Spec, want) {
		t.Errorf("got %+v, want %v", definition.Spec, want)
	}
}
