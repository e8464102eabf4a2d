package kind_test

import (
	"context"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/crd/kind"
	"binnacle/services/apiserver/internal/crd/rules"
	"binnacle/services/apiserver/internal/registry"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// shouting is a conversion that changes more than the version.
type shouting struct{}

func (shouting) Convert(_ context.Context, docs [][]byte, version string) ([][]byte, error) {
	out := make([][]byte, len(docs))
	for i, d := range docs {
		text := strings.ReplaceAll(string(d), "example.com/v1", "example.com/"+version)
		out[i] = []byte(strings.ReplaceAll(text, `"a":"quiet"`, `"a":"loud","gone":1`))
	}
	return out, nil
}

// versions returns the kinds of a definition whose schemas have different defaults.
func versions(t *testing.T, strategy v1.ConversionStrategyType) []*registry.Kind {
	t.Helper()
	version := func(name string) v1.CustomResourceDefinitionVersion {
		return v1.CustomResourceDefinitionVersion{Name: name, Served: true, Storage: name == "v1", Schema: &v1.CustomResourceValidation{
			OpenAPIV3Schema: &v1.JSONSchemaProps{Type: "object", Properties: map[string]v1.JSONSchemaProps{
				"spec": {Type: "object", Properties: map[string]v1.JSONSchemaProps{
					"a": {Type: "string"},
					"b": {Type: "string", Default: &v1.JSON{Raw: []byte(`"of ` + name + `"`)}},
				}},
			}},
		}}
	}
	read := func() (*v1.CustomResourceDefinition, error) {
		return &v1.CustomResourceDefinition{Spec: v1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: v1.NamespaceScoped, Conversion: &v1.CustomResourceConversion{Strategy: strategy},
			Versions: []v1.CustomResourceDefinitionVersion{version("v1"), version("v2")},
		}}, nil
	}
	d, err := kind.Read(read, read)
	if err != nil {
		t.Fatal(err)
	}
	return (&kind.Maker{Rules: rules.NewCompiler(), Conversion: func(*kind.CRD) kind.Conversion { return shouting{} }}).All(d)
}

// TestOpenMatchesServe: a single document is opened as it is served among others.
func TestOpenMatchesServe(t *testing.T) {
	stored := map[string]string{
		"in form":              `{"apiVersion":"example.com/v1","kind":"Thing","spec":{"a":"quiet","b":"x"}}`,
		"without defaults":     `{"apiVersion":"example.com/v1","kind":"Thing","spec":{"a":"quiet"}}`,
		"with what is unknown": `{"apiVersion":"example.com/v1","kind":"Thing","spec":{"a":"quiet","c":{"d":[1]}},"more":1}`,
		"of the other version": `{"apiVersion":"example.com/v2","kind":"Thing","spec":{}}`,
		"of a removed version": `{"apiVersion":"example.com/v0","kind":"Thing","spec":{"c":1}}`,
		"of none":              `{"kind":"Thing","spec":{"c":1}}`,
		"a name twice":         `{"apiVersion":"example.com/v1","spec":{"a":"first","b":"x","a":"last"}}`,
		"another order":        `{"spec":{"b":"x","a":"quiet"},"kind":"Thing","apiVersion":"example.com/v1"}`,
		"no object":            `[1]`,
		"no JSON":              `{"apiVersion":`,
	}
	for _, strategy := range []v1.ConversionStrategyType{v1.NoneConverter, v1.WebhookConverter} {
		for _, k := range versions(t, strategy) {
			for name, text := range stored {
				t.Run(string(strategy)+" "+k.Version+" "+name, func(t *testing.T) {
					want, failed := k.Document.Serve(t.Context(), [][]byte{[]byte(text)})
					d, err := k.Document.Open(t.Context(), []byte(text))
					if failed != nil || err != nil {
						if failed == nil || err == nil || failed.Error() != err.Error() {
							t.Fatalf("got %v, want %v", err, failed)
						}
						return
					}
					defer d.Release()
					if string(d.Raw()) != string(want[0]) {
						t.Errorf("got %s, want %s", d.Raw(), want[0])
					}
					if strings.HasPrefix(name, "with") && !strings.Contains(string(d.Raw()), `"b":"of v1"`) {
						t.Errorf("%s: got no default of the stored version", d.Raw())
					}
				})
			}
		}
	}
}
