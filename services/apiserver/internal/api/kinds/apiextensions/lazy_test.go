package apiextensions_test

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
)

// definitionCoders returns the codec of definitions, and one without lazily decoded fields.
func definitionCoders(t *testing.T) (lazy, eager *codec.KindCodec) {
	t.Helper()
	catalog, err := builtin.DefaultCatalog()
	if err != nil {
		t.Fatal(err)
	}
	objectCodec, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range catalog.Kinds() {
		if kind.Resource == "customresourcedefinitions" {
			plain := *kind
			plain.Stored.LazyField = nil
			if eager, err = objectCodec.NewKindCodec(&plain); err != nil {
				t.Fatal(err)
			}
			lazy = objectCodec.ForKind(kind)
		}
	}
	return lazy, eager
}

// bodies returns definitions as clients send them: recorded ones, then ones with valid and invalid
// schemas at unusual places, then texts that are not definitions.
func bodies(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile("../../../registry/apis/apiextensions/v1/testdata/recorded.json")
	if err != nil {
		t.Fatal(err)
	}
	var recorded []struct{ JSON json.RawMessage }
	if err := json.Unmarshal(data, &recorded); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, definition := range recorded {
		all = append(all, string(definition.JSON))
	}
	const (
		template = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"as.example.com","labels":{"a":"<b>"},"managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{}}}]},"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"as","kind":"A"},"versions":[%s]}}`
		schema   = `"schema":{"openAPIV3Schema":{"type":"object","description":"<&> ü","properties":{"spec":{"type":"object","default":{ "a" : 1 },"properties":{"n":{"type":"integer","maximum":1.50}}}}}}`
	)
	for _, versions := range []string{
		"", "null", `{"name":"v1","served":true,"storage":true}`, `{"name":"v1",` + schema + `}`, `{` + schema + `}`,
		`{"name":"v1","served":true,"storage":true,` + schema + `,"subresources":{"status":{}}},{"name":"v2","served":true,` + schema + `,"subresources":{"status":{}}}`,
		`{"name":"v1","served":true,"storage":true,` + schema + `,"additionalPrinterColumns":[{"name":"C","type":"string","jsonPath":".spec.n"}]},{"name":"v2","selectableFields":[{"jsonPath":".spec.n"}]}`,
		`{"name":"v1",` + strings.Replace(schema, "integer", "string", 1) + `},{"name":"v2",` + schema + `}`,
		`{"name":"v1","schema":null}`, `{"name":"v1","schema":{}}`, `{"name":"v1","schema":{"openAPIV3Schema":null}}`,
		`{"name":"v1","schema":{"openAPIV3Schema":{}}}`, `{"name":"v1","schema":7}`,
		`{"name":"v1","schema":{"openAPIV3Schema":{"type":"object"},"more":1}}`,
		`{"name":"v1","Schema":{"openAPIV3Schema":{"type":"object"}}}`,
		`{"name":"v1","schema":{"openAPIV3Schema":{"type":"object","unknown":1}}}`,
		`{"name":"v1","schema":{"openAPIV3Schema":{"type":"object","type":"array"}}}`,
		`{"name":"v1","schema":{"openAPIV3Schema":{"type":7}}}`,
		`{"name":"v1","schema":{"openAPIV3Schema":{"type":"a"}},"schema":{"openAPIV3Schema":{"format":"b"}}}`,
		`{"name":"v1","unknown":1,` + schema + `}`,
		`{"name":"v1","schema":{"openAPIV3Schema":{"properties":{"a":{"type":"object","nonsense":{}}}}}}`,
	} {
		all = append(all, fmt.Sprintf(template, versions))
	}
	return append(
		all,
		fmt.Sprintf(strings.Replace(template, `"spec":`, `"spec":{"validation":{"openAPIV3Schema":{}}},"spec":`, 1),
			`{"name":"v1",`+schema+`}`),
		fmt.Sprintf(strings.Replace(template, `"group":`, `"validation":{"openAPIV3Schema":{}},"group":`, 1), `{"name":"v1",`+schema+`}`),
		fmt.Sprintf(strings.Replace(template, "v1", "v1beta1", 1), ""),
		"{}",
		"[]",
		"{",
		`{"spec":{"versions":[{"schema":{"openAPIV3Schema":{"type":"object"`,
	)
}

// TestLazyDecodingEqualsEagerDecoding checks that both give the same objects, errors and encodings.
func TestLazyDecodingEqualsEagerDecoding(t *testing.T) {
	lazy, eager := definitionCoders(t)
	valid := 0
	for i, body := range bodies(t) {
		for _, isStrict := range []bool{true, false} {
			want, wantErr := eager.DecodeBody(api.MediaJSON, []byte(body), isStrict)
			got, err := lazy.DecodeBody(api.MediaJSON, []byte(body), isStrict)
			if fmt.Sprint(err) != fmt.Sprint(wantErr) || fmt.Sprint(got.Unknown) != fmt.Sprint(want.Unknown) || got.GVK != want.GVK ||
				!reflect.DeepEqual(got.Object, want.Object) {
				t.Errorf("body %d, strict %t: got %+v and error %v\nwant %+v and error %v\nfor %s", i, isStrict, got, err, want, wantErr, body)
			}
			obj, ok := want.Object.(registry.Object)
			if wantErr != nil || !ok || want.GVK != eager.Kind.GVK() {
				continue
			}
			stored, err := eager.EncodeStored(obj)
			if err != nil {
				t.Fatal(err)
			}
			item := codec.Item{Stored: stored, Revision: 7}
			wantFrame, err := eager.JSONFrame(codec.Modified, item)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := lazy.JSONFrame(codec.Modified, item); err != nil || string(got) != string(wantFrame) {
				t.Errorf("body %d: got watch event %s (error %v)\nwant %s\nstored as %s", i, got, err, wantFrame, stored)
			}
			valid++
		}
	}
	if valid < 20 {
		t.Errorf("got %d valid bodies, want at least 20", valid)
	}
}

// TestUsualDefinitionsAreDecodedLazily checks that for usual definitions, the decoder gets a body
// without the schema.
func TestUsualDefinitionsAreDecodedLazily(t *testing.T) {
	lazy, _ := definitionCoders(t)
	decodedLazily := 0
	for _, body := range bodies(t) {
		lacksSchema := false
		_, ok := lazy.Kind.Stored.LazyField.Decode([]byte(body), func(data []byte) (registry.Object, error) {
			lacksSchema = !strings.Contains(string(data), "openAPIV3Schema")
			obj := lazy.Kind.New().(registry.Object)
			return obj, json.Unmarshal(data, obj)
		})
		if ok && lacksSchema && strings.Contains(body, "openAPIV3Schema") {
			decodedLazily++
		}
	}
	if decodedLazily < 4 {
		t.Errorf("got %d lazily decoded bodies, want at least 4", decodedLazily)
	}
}
