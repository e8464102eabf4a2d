package kind_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/crd/kind"
	"binnacle/services/apiserver/internal/crd/rules"
	"binnacle/services/apiserver/internal/registry"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// specChangingConversion is a conversion that changes the spec too.
type specChangingConversion struct{}

func (specChangingConversion) Convert(_ context.Context, docs [][]byte, version string) ([][]byte, error) {
	out := make([][]byte, len(docs))
	for i, doc := range docs {
		text := strings.ReplaceAll(string(doc), "example.com/v1", "example.com/"+version)
		out[i] = []byte(strings.ReplaceAll(text, `"a":"quiet"`, `"a":"loud","gone":1`))
	}
	return out, nil
}

// kindsWithDefaults returns the kinds of a definition whose schemas have different defaults.
func kindsWithDefaults(t *testing.T, strategy v1.ConversionStrategyType) []*registry.Kind {
	t.Helper()
	version := func(name string) v1.CustomResourceDefinitionVersion {
		return v1.CustomResourceDefinitionVersion{
			Name:    name,
			Served:  true,
			Storage: name == "v1",
			Schema: &v1.CustomResourceValidation{
				OpenAPIV3Schema: &v1.JSONSchemaProps{Type: "object", Properties: map[string]v1.JSONSchemaProps{
					"spec": {Type: "object", Properties: map[string]v1.JSONSchemaProps{
						"a": {Type: "string"},
						"b": {Type: "string", Default: &v1.JSON{Raw: []byte(`"of ` + name + `"`)}},
					}},
				}},
			},
		}
	}
	read := func() (*v1.CustomResourceDefinition, error) {
		return &v1.CustomResourceDefinition{Spec: v1.CustomResourceDefinitionSpec{
			Group:      "example.com",
			Scope:      v1.NamespaceScoped,
			Conversion: &v1.CustomResourceConversion{Strategy: strategy},
			Versions:   []v1.CustomResourceDefinitionVersion{version("v1"), version("v2")},
		}}, nil
	}
	definition, err := kind.NewCRD(read, read)
	if err != nil {
		t.Fatal(err)
	}
	maker := &kind.Maker{
		Rules:      rules.NewCompiler(),
		Conversion: func(*kind.CRD) kind.Conversion { return specChangingConversion{} },
	}
	return maker.All(definition)
}

// TestParseServedMatchesToServed checks that ParseServed returns the same document as ToServed.
func TestParseServedMatchesToServed(t *testing.T) {
	stored := map[string]string{
		"complete":             `{"apiVersion":"example.com/v1","kind":"Thing","spec":{"a":"quiet","b":"x"}}`,
		"without defaults":     `{"apiVersion":"example.com/v1","kind":"Thing","spec":{"a":"quiet"}}`,
		"with unknown fields":  `{"apiVersion":"example.com/v1","kind":"Thing","spec":{"a":"quiet","c":{"d":[1]}},"more":1}`,
		"of the other version": `{"apiVersion":"example.com/v2","kind":"Thing","spec":{}}`,
		"of a removed version": `{"apiVersion":"example.com/v0","kind":"Thing","spec":{"c":1}}`,
		"without a version":    `{"kind":"Thing","spec":{"c":1}}`,
		"duplicate field":      `{"apiVersion":"example.com/v1","spec":{"a":"first","b":"x","a":"last"}}`,
		"another order":        `{"spec":{"b":"x","a":"quiet"},"kind":"Thing","apiVersion":"example.com/v1"}`,
		"not an object":        `[1]`,
		"not JSON":             `{"apiVersion":`,
	}
	for _, strategy := range []v1.ConversionStrategyType{v1.NoneConverter, v1.WebhookConverter} {
		for _, served := range kindsWithDefaults(t, strategy) {
			for name, text := range stored {
				t.Run(string(strategy)+" "+served.Version+" "+name, func(t *testing.T) {
					want, wantErr := served.Document.ToServed(t.Context(), [][]byte{[]byte(text)})
					doc, err := served.Document.ParseServed(t.Context(), []byte(text))
					if fmt.Sprint(err) != fmt.Sprint(wantErr) {
						t.Fatalf("ParseServed(%s) = error %v, want %v", text, err, wantErr)
					}
					if err != nil {
						return
					}
					defer doc.Release()
					if string(doc.Raw()) != string(want[0]) {
						t.Errorf("ParseServed(%s) = %s, want %s", text, doc.Raw(), want[0])
					}
					getsDefault := name == "without defaults" || name == "with unknown fields"
					if getsDefault && !strings.Contains(string(doc.Raw()), `"b":"of v1"`) {
						t.Errorf("ParseServed(%s) = %s, want the default of the stored version", text, doc.Raw())
					}
				})
			}
		}
	}
}
