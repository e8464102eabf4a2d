package codec_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/codec/doccheck"
	"binnacle/services/apiserver/internal/json/formats"
	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// aliasBomb returns a YAML document whose aliases expand to 8^levels copies of a text.
func aliasBomb(levels int, text string) string {
	document := "kind: ConfigMap\napiVersion: v1\nl0: &l0 [" + text + "]\n"
	for i := range levels {
		alias := fmt.Sprintf("*l%d", i)
		document += fmt.Sprintf("l%d: &l%d [%s]\n", i+1, i+1, strings.Join(slices.Repeat([]string{alias}, 8), ","))
	}
	return document
}

// bytesField returns a length-delimited protobuf field. number is at most 15.
func bytesField(number byte, content string) string {
	return string(binary.AppendUvarint([]byte{number<<3 | 2}, uint64(len(content)))) + content
}

// nested returns an opening text and a closing text, each repeated.
func nested(open, end string, levels int) string {
	return strings.Repeat(open, levels) + strings.Repeat(end, levels)
}

// TestBodiesAreBounded checks that documents beyond a bound of doccheck are rejected in each media
// type, before they are decoded.
func TestBodiesAreBounded(t *testing.T) {
	_, codec := newCodec(t)
	configMapGVK := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	list := func(element string, n int) string { return strings.Repeat(element+",", n-1) + element }
	configMap := func(rest string) string { return `{"kind":"ConfigMap","apiVersion":"v1",` + rest + `}` }
	deepCBOR := func(levels int) string {
		return "\xd9\xd9\xf7\xa1\x41a" + strings.Repeat("\x81", levels) + "\x01"
	}
	for name, test := range map[string]struct{ media, body, want string }{
		"aliases": {
			media: api.MediaYAML,
			body:  "kind: ConfigMap\napiVersion: v1\nmetadata:\n  labels: &l {a: b}\n  annotations: *l\n",
		},
		"a recursive alias": {
			media: api.MediaYAML,
			body:  "kind: ConfigMap\napiVersion: v1\nmetadata: &l {annotations: *l}\n",
			want:  "the aliases of the document expand",
		},
		"an alias bomb": {
			media: api.MediaYAML,
			body:  aliasBomb(8, "x"),
			want:  "the aliases of the document expand to more than 3145728 bytes",
		},
		"aliases of a long text": {
			media: api.MediaYAML,
			body:  aliasBomb(2, strings.Repeat("x", 100_000)),
			want:  "the aliases of the document expand to more than 3145728 bytes",
		},
		"merge keys": {
			media: api.MediaYAML,
			body:  "a: &a {b: " + strings.Repeat("x", 1_000_000) + "}\nc: [" + list("{<<: *a}", 10) + "]\n",
			want:  "the aliases of the document expand",
		},
		"deep YAML": {media: api.MediaYAML, body: "a: " + nested("[", "]", 600), want: "nested more than 500 levels deep"},
		"many lists in YAML": {
			media: api.MediaYAML,
			body:  "a:\n" + strings.Repeat("- []\n", doccheck.MaxContainers),
			want:  "more than 131072 lists and objects",
		},
		"many values in YAML": {
			media: api.MediaYAML,
			body:  "a:\n" + strings.Repeat("- b\n", doccheck.MaxValues),
			want:  "more than 262144 values",
		},
		"JSON of moderate depth": {media: api.MediaJSON, body: configMap(`"x":` + nested("[", "]", 400))},
		"deep JSON": {
			media: api.MediaJSON,
			body:  configMap(`"x":` + nested("[", "]", 500)),
			want:  "nested more than 500 levels deep",
		},
		"brackets in a string": {
			media: api.MediaJSON,
			body:  configMap(`"data":{"a":"` + strings.Repeat("[{,\\\"", 100_000) + `"}`),
		},
		"many objects": {
			media: api.MediaJSON,
			body:  configMap(`"x":[` + list("{}", doccheck.MaxContainers) + "]"),
			want:  "more than 131072 lists and objects",
		},
		"many values": {
			media: api.MediaJSON,
			body:  configMap(`"x":[` + list("1", doccheck.MaxValues) + "]"),
			want:  "more than 262144 values",
		},
		"a long field name": {
			media: api.MediaJSON,
			body:  configMap(`"` + strings.Repeat("x", doccheck.MaxKey+1) + `" : 1`),
			want:  "a field name of more than 65536 bytes",
		},
		"a long string": {media: api.MediaJSON, body: configMap(`"data":{"a":"` + strings.Repeat("x", 1<<20) + `"}`)},
		"deep CBOR":     {media: api.MediaCBOR, body: deepCBOR(600), want: "exceeded max nested level"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := codec.Decode(test.media, []byte(test.body), configMapGVK, nil, true)
			switch {
			case test.want == "" && err != nil:
				t.Errorf("Decode: got error %.200v, want none", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("Decode: got error %.200v, want %q", err, test.want)
			}
		})
	}
}

// TestProtobufIsBounded checks the bounds of protobuf bodies: two bytes of a message can become an
// object of several hundred bytes.
func TestProtobufIsBounded(t *testing.T) {
	_, codec := newCodec(t)
	field := bytesField
	typeMeta := field(1, field(1, "v1")+field(2, "Pod"))
	gvkPod := corev1.SchemeGroupVersion.WithKind("Pod")

	encode := func(obj runtime.Object, gvk schema.GroupVersionKind) []byte {
		t.Helper()
		data, err := codec.Encode(obj, gvk, api.MediaProtobuf, false)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Finalizers: make([]string, doccheck.MaxValues+1)}}
	deep := &apiextensionsv1.JSONSchemaProps{}
	for range doccheck.MaxDepth {
		deep = &apiextensionsv1.JSONSchemaProps{Not: deep}
	}
	crd := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
			{Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: deep}},
		},
	}}
	gvkCRD := apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
	for name, test := range map[string]struct {
		body []byte
		gvk  schema.GroupVersionKind
		want string // part of the error
	}{
		// Each container and each owner takes two bytes.
		"many containers": {
			body: []byte("k8s\x00" + typeMeta + field(2, field(2, strings.Repeat("\x12\x00", doccheck.MaxContainers)))),
			gvk:  gvkPod,
			want: "the lists of the document take more than 16777216 bytes",
		},
		"many owners": {
			body: []byte("k8s\x00" + typeMeta + field(2, field(1, strings.Repeat("\x6a\x00", doccheck.MaxContainers)))),
			gvk:  gvkPod,
			want: "more than 131072 lists and objects",
		},
		"many finalizers": {body: encode(pod, gvkPod), gvk: gvkPod, want: "more than 262144 values"},
		"deep schema":     {body: encode(crd, gvkCRD), gvk: gvkCRD, want: "nested more than 500 levels deep"},
	} {
		_, err := codec.Decode(api.MediaProtobuf, test.body, test.gvk, nil, true)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got error %v, want one that contains %q", name, err, test.want)
		}
	}
}

// TestProtobufValuesAreCounted checks the approximate number of values of a protobuf body, which
// its length does not show.
func TestProtobufValuesAreCounted(t *testing.T) {
	_, codec := newCodec(t)
	gvk := corev1.SchemeGroupVersion.WithKind("Pod")
	for name, test := range map[string]struct {
		pod              corev1.Pod
		minimum, maximum int
	}{
		"an ordinary pod": {
			pod: corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"a": "1"}},
				Spec:       corev1.PodSpec{Containers: make([]corev1.Container, 2)},
			},
			minimum: 3,
			maximum: 40,
		},
		"many containers": {
			pod:     corev1.Pod{Spec: corev1.PodSpec{Containers: make([]corev1.Container, 500)}},
			minimum: 500,
			maximum: 5000,
		},
		"many finalizers": {
			pod:     corev1.Pod{ObjectMeta: metav1.ObjectMeta{Finalizers: make([]string, 10_000)}},
			minimum: 10_000,
			maximum: 10_100,
		},
	} {
		data, err := codec.Encode(&test.pod, gvk, api.MediaProtobuf, false)
		if err != nil {
			t.Fatal(err)
		}
		if values := codec.Checks.Values(api.MediaProtobuf, data, gvk); values < test.minimum || values > test.maximum {
			t.Errorf("%s of %d bytes: got %d values, want %d to %d", name, len(data), values, test.minimum, test.maximum)
		}
		if values := codec.Checks.Values(api.MediaJSON, data, gvk); values != 0 {
			t.Errorf("%s declared as JSON: got %d values, want 0", name, values)
		}
	}
	if values := codec.Checks.Values(api.MediaProtobuf, []byte("k8s\x00\xff"), gvk); values != 0 {
		t.Errorf("invalid body: got %d values, want 0", values)
	}
}

// TestUnusualProtobufIsBounded checks that the bounds hold for bodies that only the decoder can
// read: it skips unknown fields, takes a missing type from the expected one, and merges repeated
// values.
func TestUnusualProtobufIsBounded(t *testing.T) {
	_, codec := newCodec(t)
	field := bytesField
	const group = "\xa3\x06\xa4\x06" // field 100 begins and ends
	meta := field(1, field(1, "v1")+field(2, "Pod"))
	many := strings.Repeat("\x12\x00", doccheck.MaxContainers)
	long := "\x92\x80\x80\x80\x80\x01" // field 2 and 1<<32
	for name, body := range map[string]string{
		"no version":                  field(1, field(2, "Pod")) + field(2, field(2, many)),
		"no kind":                     field(1, field(1, "v1")) + field(2, field(2, many)),
		"a group":                     meta + field(2, group+field(2, many)),
		"a group at the end":          meta + field(2, field(2, many)+group),
		"a group in the envelope":     group + meta + field(2, field(2, many)),
		"an overflowing field number": meta + field(2, long+field(2, many)[1:]),
	} {
		pod := corev1.SchemeGroupVersion.WithKind("Pod")
		if _, err := codec.Decode(api.MediaProtobuf, []byte("k8s\x00"+body), pod, nil, true); err == nil {
			t.Errorf("Decode with %s: got no error, want one", name)
		}
	}
	// A property may have two schemas. The decoder keeps one.
	wide := func(number int, content string) string {
		return string(binary.AppendUvarint(binary.AppendUvarint(nil, uint64(number)<<3|2), uint64(len(content)))) + content
	}
	const properties, allOf = 29, 25
	entry := field(1, "a") + field(2, strings.Repeat(wide(allOf, ""), 60_000)) + field(2, "")
	schema := field(2, field(7, field(4, field(1, wide(properties, entry)))))
	gvk := apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
	_, err := codec.Decode(api.MediaProtobuf, []byte("k8s\x00"+field(2, schema)), gvk, nil, true)
	if err == nil || !strings.Contains(err.Error(), "the lists of the document take more than 16777216 bytes") {
		t.Errorf("property with two schemas: got error %v, want one about lists that are too large", err)
	}
}

// TestOptionsAreBounded checks that the limits of objects apply to options.
func TestOptionsAreBounded(t *testing.T) {
	_, objectCodec := newCodec(t)
	dryRuns := strings.Repeat(bytesField(5, ""), doccheck.MaxValues+1)
	for media, body := range map[string]string{
		api.MediaYAML:     "x:\n" + strings.Repeat("- b\n", doccheck.MaxValues),
		api.MediaJSON:     `{"x":[` + strings.Repeat("1,", doccheck.MaxValues) + `1]}`,
		api.MediaProtobuf: "k8s\x00" + bytesField(2, dryRuns),
	} {
		if _, err := objectCodec.DecodeInto(media, []byte(body), &metav1.DeleteOptions{}); err == nil ||
			!strings.Contains(err.Error(), "more than 262144 values") {
			t.Errorf("DecodeInto of %s: got error %.200v, want one about too many values", media, err)
		}
	}
}

// TestLayoutIsBounded checks that a deep and long document is not indented, because the result
// would be too large.
func TestLayoutIsBounded(t *testing.T) {
	deep := []byte(`{"a":` + strings.Repeat("[", 400) + strings.Repeat("1,", 100_000) + "1" + strings.Repeat("]", 400) + "}")
	shallow := []byte(`{"a":[{"b":[1,2,{"c":"d"}]}]}`)
	for name, format := range map[string]func([]byte) ([]byte, error){
		"json": formats.Indent, "yaml": formats.JSONToYAML,
		"an item of json": func(b []byte) ([]byte, error) { return formats.NewLayout("items", false).AppendItem(nil, b) },
		"an item of yaml": func(b []byte) ([]byte, error) { return formats.NewLayout("items", true).AppendItem(nil, b) },
	} {
		got, err := format(deep)
		if err != nil || len(got) > 2*len(deep) {
			t.Errorf("%s: got %d bytes, %v, for a document of %d, want at most twice as many", name, len(got), err, len(deep))
		}
		got, err = format(shallow)
		if err != nil || bytes.Count(got, []byte("\n")) < 4 {
			t.Errorf("%s: got %s, %v, want it indented", name, got, err)
		}
	}
	got, err := formats.NewLayout("items", true).AppendItem([]byte("items:\n"), deep)
	if err != nil {
		t.Fatal(err)
	}
	back, err := yaml.YAMLToJSON(got)
	if err != nil || string(back) != `{"items":[`+string(deep)+`]}` {
		t.Errorf("item without indentation differs after decoding: %v", err)
	}
}
