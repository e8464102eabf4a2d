package codec_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/codec/doccheck"
	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// manyContainers is the lowest number of containers that exceeds doccheck.MaxListBytes.
const manyContainers = doccheck.MaxListBytes/int(unsafe.Sizeof(corev1.Container{})) + 1

// TestListsAreBounded checks that a short document that would decode to large lists of structs is
// rejected, however it is written, and that every object that can be stored can be sent.
func TestListsAreBounded(t *testing.T) {
	_, codec := newCodec(t)
	list := func(element string, n int) string { return "[" + strings.Repeat(element+",", n-1) + element + "]" }
	pod := func(name, containers string) string {
		return `{"kind":"Pod","apiVersion":"v1", "spec" : { "hostname":"a\"b","` + name + `" : ` + containers + ` }}`
	}
	many := list("{}", manyContainers)
	deployment := `{"kind":"Deployment","apiVersion":"apps/v1","spec":{"template":{"spec":{"containers":` + many + `}}}}`
	block := func(text string) string {
		data, err := yaml.JSONToYAML([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	// The elements are smaller than containers, so that more of them fit.
	env := `[{"name":"a","env":` + list(`{"name":"a","value":"b"}`, 60_000) + `}]`
	merged := "kind: Pod\napiVersion: v1\nspec:\n  <<: {containers: " + many + "}\n"
	listed := "kind: Pod\napiVersion: v1\nspec:\n  <<: [{containers: " + many + "}]\n"
	half := list("{}", (manyContainers+1)/2)
	aliased := "kind: Pod\napiVersion: v1\nspec:\n  containers: &c " + half + "\n  initContainers: *c\n"
	for name, test := range map[string]struct {
		media, body  string
		wantRejected bool
	}{
		"empty containers": {media: api.MediaJSON, body: pod("containers", many), wantRejected: true},
		"empty containers with spaces": {
			media:        api.MediaJSON,
			body:         pod("containers", strings.ReplaceAll(many, "{},", " { } ,\n")),
			wantRejected: true,
		},
		"null containers":          {media: api.MediaJSON, body: pod("containers", list("null", manyContainers)), wantRejected: true},
		"an escaped name":          {media: api.MediaJSON, body: pod(`\u0063ontainers`, many), wantRejected: true},
		"containers in a template": {media: api.MediaJSON, body: deployment, wantRejected: true},
		"two lists": {
			media:        api.MediaJSON,
			body:         pod("containers", half+`,"initContainers":`+half),
			wantRejected: true,
		},
		"no type":                                {media: api.MediaJSON, body: `{"spec":{"containers":` + many + `}}`, wantRejected: true},
		"unknown type":                           {media: api.MediaJSON, body: `{"kind":"Nothing","spec":{"containers":` + many + `}}`},
		"YAML":                                   {media: api.MediaYAML, body: block(pod("containers", many)), wantRejected: true},
		"JSON as YAML":                           {media: api.MediaYAML, body: pod("containers", many), wantRejected: true},
		"YAML without a type":                    {media: api.MediaYAML, body: "spec: {containers: " + many + "}\n", wantRejected: true},
		"YAML of aliases":                        {media: api.MediaYAML, body: aliased, wantRejected: true},
		"YAML with a merge key":                  {media: api.MediaYAML, body: merged, wantRejected: true},
		"YAML with a merged list":                {media: api.MediaYAML, body: listed, wantRejected: true},
		"as many containers as the bound allows": {media: api.MediaJSON, body: pod("containers", list("{}", manyContainers-1))},
		"many variables":                         {media: api.MediaJSON, body: pod("containers", env)},
		"many variables in YAML":                 {media: api.MediaYAML, body: pod("containers", env)},
		"YAML with an aliased type": {
			media:        api.MediaYAML,
			body:         "metadata: {name: &k Pod}\nkind: *k\napiVersion: v1\nspec: {containers: " + many + "}\n",
			wantRejected: true,
		},
		"YAML with an aliased name": {
			media:        api.MediaYAML,
			body:         "kind: Pod\napiVersion: v1\nmetadata: {name: &c containers}\nspec: {*c : " + many + "}\n",
			wantRejected: true,
		},
		"YAML with a tagged name": {
			media:        api.MediaYAML,
			body:         "kind: Pod\napiVersion: v1\nspec: {!!binary Y29udGFpbmVycw== : " + many + "}\n",
			wantRejected: true,
		},
		"an unknown field":            {media: api.MediaJSON, body: pod("x", many)},
		"an object instead of a list": {media: api.MediaJSON, body: pod("containers", "{\"a\":"+many+"}")},
	} {
		t.Run(name, func(t *testing.T) {
			if test.media != api.MediaYAML && !json.Valid([]byte(test.body)) {
				t.Fatal("test body is not valid JSON")
			}
			_, err := codec.Decode(test.media, []byte(test.body), corev1.SchemeGroupVersion.WithKind("Pod"), nil, false)
			isListError := err != nil &&
				strings.Contains(err.Error(), "the lists of the document take more than 16777216 bytes")
			if isListError != test.wantRejected {
				t.Errorf("got rejected %t, want %t: error %.200v", isListError, test.wantRejected, err)
			}
		})
	}
}

// TestSchemasAreBounded checks the lists in schemas of CustomResourceDefinitions, whose types have
// their own JSON decoders.
func TestSchemasAreBounded(t *testing.T) {
	catalog, c := newCodec(t)
	gvk := apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
	kindCodec := c.ForKind(catalog.Kind(gvk))
	crd := func(schema string) string {
		return `{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1",` +
			`"spec":{"versions":[{"name":"v1","schema":{"openAPIV3Schema":` + schema + `}}]}}`
	}
	const schemas = doccheck.MaxListBytes/int(unsafe.Sizeof(apiextensionsv1.JSONSchemaProps{})) + 1
	many := "[" + strings.Repeat("{},", schemas-1) + "{}]"
	for name, schema := range map[string]string{
		"list of schemas":              `{"allOf":` + many + `}`,
		"list in place of one schema":  `{"properties":{"a":{"items":` + many + `}}}`,
		"list in a schema of items":    `{"items":{"items":{"anyOf":` + many + `}}}`,
		"list in additionalProperties": `{"additionalProperties":{"oneOf":` + many + `}}`,
		"list in a dependency":         `{"dependencies":{"a":{"oneOf":` + many + `}}}`,
	} {
		for _, media := range []string{api.MediaJSON, api.MediaYAML} {
			if _, err := kindCodec.DecodeBody(media, []byte(crd(schema)), false); err == nil ||
				!strings.Contains(err.Error(), "the lists of the document take more than 16777216 bytes") {
				t.Errorf("%s, %s: got error %.200v, want one about the size of the lists", name, media, err)
			}
		}
	}
	if _, err := kindCodec.DecodeBody(api.MediaJSON, []byte(crd(`{"enum":[`+strings.Repeat(`"a",`, 100_000)+`"b"]}`)), false); err != nil {
		t.Errorf("schema with many enum values: got error %v, want none", err)
	}
}
