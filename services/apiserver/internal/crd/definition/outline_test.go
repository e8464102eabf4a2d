package definition_test

import (
	"encoding/json"
	"testing"

	"binnacle/services/apiserver/internal/crd/definition"
	"binnacle/services/apiserver/internal/registry/apis/apiextensions/v1beta1"
)

func TestOutlineRemovesSchemas(t *testing.T) {
	for _, tc := range []struct{ name, stored, want string }{
		{
			name:   "one schema for all versions",
			stored: `{"kind":"K","metadata":{"name":"a","managedFields":[{"manager":"m"}],"uid":"u"},"spec":{"group":"g","validation":{"openAPIV3Schema":{"type":"object"}},"versions":[{"name":"v1","served":true}]},"status":{"conditions":[]}}`,
			want:   `{"kind":"K","metadata":{"name":"a","uid":"u"},"spec":{"group":"g","versions":[{"name":"v1","served":true}]},"status":{"conditions":[]}}`,
		},
		{
			name: "a schema in each version", stored: `{"spec": {"versions": [ {"name":"v1","schema":{"a":[1,"]}"]}}, {"schema":{},"name":"v2"} ] } }`,
			want: `{"spec":{"versions":[{"name":"v1"},{"name":"v2"}]}}`,
		},
		{name: "nothing to leave out", stored: `{"spec":{"versions":null},"metadata":7}`, want: `{"spec":{"versions":null},"metadata":7}`},
		{name: "cut off", stored: `{"spec":{"versions":[{"name"`, want: `{"spec":{"versions":[{"name"`},
		{name: "a schema twice", stored: `{"spec":{"versions":[{"schema":{},"schema":{"a":1}}]}}`, want: `{"spec":{"versions":[{"schema":{},"schema":{"a":1}}]}}`},
		{name: "escapes in names", stored: `{"sp\u0065c":{"versions":[]}}`, want: `{"sp\u0065c":{"versions":[]}}`},
		{name: "no object", stored: "[1]", want: "[1]"},
		{name: "nothing", stored: "", want: ""},
		{name: "protobuf", stored: "k8s\x00\x0a", want: "k8s\x00\x0a"},
	} {
		if got := string(definition.Unowned([]byte(tc.stored))); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
}

// TestOutlinerReuse: schemas that were seen before, and schemas with the same prefix, are removed
// like others.
func TestOutlinerReuse(t *testing.T) {
	var lately definition.Outliner
	for range 2 {
		for _, schema := range []string{`{}`, `{"a":1}`, `{"a":10}`, `{"a":{}}`, `{"a":{},"b":"}"}`, `{"a":{},"b":"}]"}`, `{ }`, `{"a":{}`, `{"a"`, `{`, `7`} {
			stored := []byte(`{"metadata":{"managedFields":[]},"spec":{"validation":` + schema + `,"versions":[{"name":"v1","schema":` + schema + `},{"name":"v2"}]}}`)
			if got, want := string(lately.Unowned(stored)), string(definition.Unowned(stored)); got != want {
				t.Errorf("with the schema %s: got %s, want %s", schema, got, want)
			}
		}
	}
}

// TestMarkedDefinitionsRoundTrip: a definition that was decoded with placeholders for its schemas
// is encoded like the full one.
func TestMarkedDefinitionsRoundTrip(t *testing.T) {
	const head = `{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1beta1","metadata":{"name":"a.g.example","annotations":{"note":"{\"openAPIV3Schema\":{\"title\":\"#0\"}}"}},"spec":{"group":"g.example"`
	for name, spec := range map[string]string{
		"a schema of all versions": `,"validation":{"openAPIV3Schema":{"type":"object","title":"#0"}},"versions":[{"name":"v1","served":true,"storage":true},{"name":"v2","served":true,"storage":false}]`,
		"of each version":          `,"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"openAPIV3Schema":{"title":"#1"}}}}},{"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"description":"other","type":"object"}}}]`,
		"of one version":           `,"versions":[{"name":"v1","served":true,"storage":true},{"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}}]`,
		"of two versions of three": `,"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}},{"name":"v2","served":true,"storage":false},{"name":"v3","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}}]`,
		"an empty one":             `,"validation":{},"versions":[{"name":"v1","served":true,"storage":true}]`,
		"none":                     `,"versions":[{"name":"v1","served":true,"storage":true}]`,
	} {
		rewritten := func(text []byte) []byte {
			d := &v1beta1.CustomResourceDefinition{}
			if err := json.Unmarshal(text, d); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			served := v1beta1.ToV1(d)
			served.Status.StoredVersions = []string{"v7"}
			out, err := json.Marshal(v1beta1.FromV1(served))
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		stored := []byte(head + spec + `},"status":{"conditions":null,"acceptedNames":{"plural":"","kind":""},"storedVersions":["v1"]}}`)
		text, restore, ok := definition.WithMarks(stored)
		if !ok {
			t.Errorf("%s: got no placeholders", name)
			continue
		}
		got, ok := restore(rewritten(text))
		if want := rewritten(stored); !ok || string(got) != string(want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
	if _, restore, ok := definition.WithMarks([]byte(head + `,"validation":{"openAPIV3Schema":{}}}}`)); !ok {
		t.Error("a definition without versions gets no placeholders")
	} else if _, ok := restore([]byte(`{"spec":{}}`)); ok {
		t.Error("a lost placeholder is not detected")
	}
}
