package codec_test

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"binnacle/libs/api"
	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// TestListsAreBounded checks all encodings: short documents must not decode to large lists of
// structs. Every object that can be stored can be sent.
func TestListsAreBounded(t *testing.T) {
	_, c := newCodec(t)
	list := func(element string, n int) string { return "[" + strings.Repeat(element+",", n-1) + element + "]" }
	pod := func(name, containers string) string {
		return `{"kind":"Pod","apiVersion":"v1", "spec" : { "hostname":"a\"b","` + name + `" : ` + containers + ` }}`
	}
	many := list("{}", 44_000)
	deployment := `{"kind":"Deployment","apiVersion":"apps/v1","spec":{"template":{"spec":{"containers":` + many + `}}}}`
	block := func(text string) string {
		b, err := yaml.JSONToYAML([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	env := `[{"name":"a","env":` + list(`{"name":"a","value":"b"}`, 60_000) + `}]`
	merged := "kind: Pod\napiVersion: v1\nspec:\n  <<: {containers: " + many + "}\n"
	listed := "kind: Pod\napiVersion: v1\nspec:\n  <<: [{containers: " + many + "}]\n"
	part := list("{}", 22_000)
	aliased := "kind: Pod\napiVersion: v1\nspec:\n  containers: &c " + part + "\n  initContainers: *c\n"
	for name, x := range map[string]struct {
		media, body string
		rejected    bool
	}{
		"empty":                   {api.MediaJSON, pod("containers", many), true},
		"empty, with spaces":      {api.MediaJSON, pod("containers", strings.ReplaceAll(many, "{},", " { } ,\n")), true},
		"null":                    {api.MediaJSON, pod("containers", list("null", 44_000)), true},
		"an escaped name":         {api.MediaJSON, pod(`\u0063ontainers`, many), true},
		"in a template":           {api.MediaJSON, deployment, true},
		"two lists":               {api.MediaJSON, pod("containers", part+`,"initContainers":`+part), true},
		"no type":                 {api.MediaJSON, `{"spec":{"containers":` + many + `}}`, true},
		"unknown type":            {api.MediaJSON, `{"kind":"Nothing","spec":{"containers":` + many + `}}`, false},
		"YAML":                    {api.MediaYAML, block(pod("containers", many)), true},
		"JSON as YAML":            {api.MediaYAML, pod("containers", many), true},
		"YAML without a type":     {api.MediaYAML, "spec: {containers: " + many + "}\n", true},
		"YAML of aliases":         {api.MediaYAML, aliased, true},
		"YAML with a merge key":   {api.MediaYAML, merged, true},
		"YAML with a merged list": {api.MediaYAML, listed, true},
		"more than can be stored": {api.MediaJSON, pod("containers", list("{}", 40_000)), false},
		"many variables":          {api.MediaJSON, pod("containers", env), false},
		"many variables in YAML":  {api.MediaYAML, pod("containers", env), false},
		"YAML with an aliased type": {api.MediaYAML,
			"metadata: {name: &k Pod}\nkind: *k\napiVersion: v1\nspec: {containers: " + many + "}\n", true},
		"YAML with an aliased name": {api.MediaYAML,
			"kind: Pod\napiVersion: v1\nmetadata: {name: &c containers}\nspec: {*c : " + many + "}\n", true},
		"YAML with a tagged name": {api.MediaYAML, "kind: Pod\napiVersion: v1\nspec: {!!binary Y29udGFpbmVycw== : " + many + "}\n", true},
		"an unknown field":        {api.MediaJSON, pod("x", many), false},
		"an object":               {api.MediaJSON, pod("containers", "{\"a\":"+many+"}"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if x.media != api.MediaYAML && !json.Valid([]byte(x.body)) {
				t.Fatal("test body is not valid JSON")
			}
			_, err := c.Decode(x.media, []byte(x.body), corev1.SchemeGroupVersion.WithKind("Pod"), nil, false)
			if rejected := err != nil &&
				strings.Contains(err.Error(), "the lists of the document take more than 16777216 bytes"); rejected != x.rejected {
				t.Errorf("got rejected %t, want %t: %.200v", rejected, x.rejected, err)
			}
		})
	}
}

// TestSchemasAreBounded checks schemas, which have their own decoders.
func TestSchemasAreBounded(t *testing.T) {
	catalog, c := newCodec(t)
	gvk := apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
	k := c.Of(catalog.Kind(gvk))
	crd := func(schema string) string {
		return `{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","spec":{"versions":[{"name":"v1","schema":{"openAPIV3Schema":` + schema + `}}]}}`
	}
	many := "[" + strings.Repeat("{},", 60_000) + "{}]"
	for name, schema := range map[string]string{
		"a list":           `{"allOf":` + many + `}`,
		"one or a list":    `{"properties":{"a":{"items":` + many + `}}}`,
		"one of one":       `{"items":{"items":{"anyOf":` + many + `}}}`,
		"one or a boolean": `{"additionalProperties":{"oneOf":` + many + `}}`,
		"one or names":     `{"dependencies":{"a":{"oneOf":` + many + `}}}`,
	} {
		for _, media := range []string{api.MediaJSON, api.MediaYAML} {
			if _, err := k.DecodeBody(media, []byte(crd(schema)), false); err == nil ||
				!strings.Contains(err.Error(), "the lists of the document take more than 16777216 bytes") {
				t.Errorf("%s, %s: got %.200v", name, media, err)
			}
		}
	}
	if _, err := k.DecodeBody(api.MediaJSON, []byte(crd(`{"enum":[`+strings.Repeat(`"a",`, 100_000)+`"b"]}`)), false); err != nil {
		t.Errorf("many values: got %v", err)
	}
}
