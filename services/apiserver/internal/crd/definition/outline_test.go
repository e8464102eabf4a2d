package definition_test

import (
	"encoding/json"
	"testing"

	"binnacle/services/apiserver/internal/crd/definition"
	"binnacle/services/apiserver/internal/registry/apis/apiextensions/v1beta1"
)

// TestOutlinerRemovesSchemasAndManagedFields checks that the rest of a stored definition keeps its
// text, and that other texts are returned as they are.
func TestOutlinerRemovesSchemasAndManagedFields(t *testing.T) {
	for _, test := range []struct{ name, stored, want string }{
		{
			name:   "one schema for all versions",
			stored: `{"kind":"K","metadata":{"name":"a","managedFields":[{"manager":"m"}],"uid":"u"},"spec":{"group":"g","validation":{"openAPIV3Schema":{"type":"object"}},"versions":[{"name":"v1","served":true}]},"status":{"conditions":[]}}`,
			want:   `{"kind":"K","metadata":{"name":"a","uid":"u"},"spec":{"group":"g","versions":[{"name":"v1","served":true}]},"status":{"conditions":[]}}`,
		},
		{
			name:   "a schema in each version",
			stored: `{"spec": {"versions": [ {"name":"v1","schema":{"a":[1,"]}"]}}, {"schema":{},"name":"v2"} ] } }`,
			want:   `{"spec":{"versions":[{"name":"v1"},{"name":"v2"}]}}`,
		},
		{name: "neither schemas nor managed fields", stored: `{"spec":{"versions":null},"metadata":7}`, want: `{"spec":{"versions":null},"metadata":7}`},
		{name: "cut off", stored: `{"spec":{"versions":[{"name"`, want: `{"spec":{"versions":[{"name"`},
		{name: "a schema twice", stored: `{"spec":{"versions":[{"schema":{},"schema":{"a":1}}]}}`, want: `{"spec":{"versions":[{"schema":{},"schema":{"a":1}}]}}`},
		{name: "escapes in names", stored: `{"sp\u0065c":{"versions":[]}}`, want: `{"sp\u0065c":{"versions":[]}}`},
		{name: "no object", stored: "[1]", want: "[1]"},
		{name: "empty", stored: "", want: ""},
		{name: "protobuf", stored: "k8s\x00\x0a", want: "k8s\x00\x0a"},
	} {
		if got := string(new(definition.Outliner).WithoutSchemas([]byte(test.stored))); got != test.want {
			t.Errorf("%s: WithoutSchemas(%s) = %s, want %s", test.name, test.stored, got, test.want)
		}
	}
}

// TestReusedOutlinerRemovesSchemas checks that an Outliner removes cached schemas, and schemas with
// the prefix of a cached one, like a new Outliner.
func TestReusedOutlinerRemovesSchemas(t *testing.T) {
	var reused definition.Outliner
	for range 2 {
		for _, schema := range []string{`{}`, `{"a":1}`, `{"a":10}`, `{"a":{}}`, `{"a":{},"b":"}"}`, `{"a":{},"b":"}]"}`, `{ }`, `{"a":{}`, `{"a"`, `{`, `7`} {
			stored := []byte(
				`{"metadata":{"managedFields":[]},"spec":{"validation":` + schema + `,"versions":[{"name":"v1","schema":` + schema + `},{"name":"v2"}]}}`,
			)
			if got, want := string(reused.WithoutSchemas(stored)), string(new(definition.Outliner).WithoutSchemas(stored)); got != want {
				t.Errorf("WithoutSchemas(%s) = %s, want %s", stored, got, want)
			}
		}
	}
}

// TestDefinitionsWithPlaceholdersAreEncodedInFull checks that a definition that is decoded with
// placeholders for its schemas is encoded like the full one.
func TestDefinitionsWithPlaceholdersAreEncodedInFull(t *testing.T) {
	const head = `{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1beta1","metadata":{"name":"a.g.example","annotations":{"note":"{\"openAPIV3Schema\":{\"title\":\"#0\"}}"}},"spec":{"group":"g.example"`
	for name, spec := range map[string]string{
		"one schema for all versions":      `,"validation":{"openAPIV3Schema":{"type":"object","title":"#0"}},"versions":[{"name":"v1","served":true,"storage":true},{"name":"v2","served":true,"storage":false}]`,
		"a schema in each version":         `,"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"openAPIV3Schema":{"title":"#1"}}}}},{"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"description":"other","type":"object"}}}]`,
		"a schema in one version":          `,"versions":[{"name":"v1","served":true,"storage":true},{"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}}]`,
		"schemas in two of three versions": `,"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}},{"name":"v2","served":true,"storage":false},{"name":"v3","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}}]`,
		"an empty schema":                  `,"validation":{},"versions":[{"name":"v1","served":true,"storage":true}]`,
		"no schema":                        `,"versions":[{"name":"v1","served":true,"storage":true}]`,
	} {
		decodeAndEncode := func(data []byte) []byte {
			decoded := &v1beta1.CustomResourceDefinition{}
			if err := json.Unmarshal(data, decoded); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			served := v1beta1.ToV1(decoded)
			served.Status.StoredVersions = []string{"v7"}
			out, err := json.Marshal(v1beta1.FromV1(served))
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		stored := []byte(
			head + spec + `},"status":{"conditions":null,"acceptedNames":{"plural":"","kind":""},"storedVersions":["v1"]}}`,
		)
		data, restore, ok := definition.WithPlaceholders(stored)
		if !ok {
			t.Errorf("%s: WithPlaceholders(%s) = false, want true", name, stored)
			continue
		}
		got, ok := restore(decodeAndEncode(data))
		if want := decodeAndEncode(stored); !ok || string(got) != string(want) {
			t.Errorf("%s: restore = %s, %t\nwant %s, true", name, got, ok, want)
		}
	}
	if _, restore, ok := definition.WithPlaceholders([]byte(head + `,"validation":{"openAPIV3Schema":{}}}}`)); !ok {
		t.Error("WithPlaceholders(definition without versions) = false, want true")
	} else if _, ok := restore([]byte(`{"spec":{}}`)); ok {
		t.Error("restore(text without placeholders) = true, want false")
	}
}
