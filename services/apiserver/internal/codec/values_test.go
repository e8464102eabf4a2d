package codec_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/codec/doccheck"
	"binnacle/services/apiserver/internal/json/formats"
	"binnacle/services/apiserver/internal/registry"
	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// invalidUTF8 is a text that is not valid UTF-8.
const invalidUTF8 = "a\xffb"

// unservable returns objects with a value that not every encoding can express, by the path in the
// error.
func unservable() map[string]registry.Object {
	tooLate := metav1.NewTime(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))
	nan := math.NaN()
	return map[string]registry.Object{
		"spec.ports.targetPort: type 7": &corev1.Service{
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.IntOrString{Type: 7}}}},
		},
		"spec.template.spec.containers.livenessProbe.httpGet.port: type 2": &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
			LivenessProbe: &corev1.Probe{
				ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.IntOrString{Type: 2}}},
			},
		}}}}}},
		"data: invalid UTF-8":            &corev1.ConfigMap{Data: map[string]string{"a": invalidUTF8}},
		"binaryData: invalid UTF-8":      &corev1.ConfigMap{BinaryData: map[string][]byte{invalidUTF8: nil}},
		"metadata.labels: invalid UTF-8": &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{invalidUTF8: "x"}}},
		"spec.containers.args: invalid UTF-8": &corev1.Pod{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Args: []string{"ok", invalidUTF8}}}},
		},
		"metadata.deletionTimestamp: time": &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &tooLate}},
		"data: invalid JSON":               &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: []byte("{")}},
		"data: unpaired surrogate \\ud800": &appsv1.ControllerRevision{
			Data: runtime.RawExtension{Raw: []byte(`{"a":"\\\ud83d\ude00 \ud800 "}`)},
		},
		"metadata.managedFields.fieldsV1: invalid JSON": &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{FieldsV1: &metav1.FieldsV1{Raw: []byte("f:x")}}}},
		},
		"spec.versions.schema.openAPIV3Schema.properties.maximum: NaN": &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Schema: &apiextensionsv1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Properties: map[string]apiextensionsv1.JSONSchemaProps{"a": {Maximum: &nan}},
				},
			},
		}}}},
	}
}

// TestProtobufRejectsValuesThatJSONCannotExpress checks that such values are rejected with the path
// of the field, both in bodies and before they are stored.
func TestProtobufRejectsValuesThatJSONCannotExpress(t *testing.T) {
	catalog, objectCodec := newCodec(t)
	for want, obj := range unservable() {
		gvks, _, err := objectCodec.Scheme().ObjectKinds(obj)
		if err != nil {
			t.Fatal(err)
		}
		body, err := objectCodec.Encode(obj, gvks[0], api.MediaProtobuf, false)
		if err != nil {
			t.Fatalf("%s: %v", want, err)
		}
		_, err = objectCodec.Decode(api.MediaProtobuf, body, gvks[0], nil, false)
		if invalid := new(doccheck.ValueError); !errors.As(err, &invalid) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Decode() = %v, want a ValueError that starts with %s", err, want)
		}
		for _, kind := range catalog.Kinds() {
			if kind.GVK() == gvks[0] && kind.Stored.ToStored == nil && !kind.Stored.JSON {
				if err := objectCodec.ForKind(kind).CheckStored(body); err == nil || !strings.HasPrefix(err.Error(), want) {
					t.Errorf("CheckStored() = %v, want an error that starts with %s", err, want)
				}
			}
		}
	}
}

// TestDecodeRejectsExpensiveQuantities checks that quantities that would take hours to parse are
// rejected in each encoding.
func TestDecodeRejectsExpensiveQuantities(t *testing.T) {
	_, objectCodec := newCodec(t)
	pod := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	quota := schema.GroupVersionKind{Version: "v1", Kind: "ResourceQuota"}
	cbor, err := formats.JSONToCBOR([]byte(`{"kind":"ResourceQuota","apiVersion":"v1","spec":{"hard":{"cpu":"1e-2147483647"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	limits := func(quantity string) string {
		return `{"kind":"Pod","apiVersion":"v1","spec":{"containers":[{"name":"a"},{"name":"b","resources":{"limits":{"cpu":` + quantity + `}}}]}}`
	}
	const path = "spec.containers[1].resources.limits.cpu: exponent"
	for _, test := range []struct {
		media, body, want string
		gvk               schema.GroupVersionKind
	}{
		{media: api.MediaJSON, body: limits(`"1e-2147483647"`), want: path, gvk: pod},
		{media: api.MediaJSON, body: limits(`1E-2147483647`), want: path, gvk: pod},
		{
			media: api.MediaJSON,
			body:  limits(`"` + strings.Repeat("1", 500) + `"`),
			want:  "spec.containers[1].resources.limits.cpu: quantity of 500 bytes",
			gvk:   pod,
		},
		{media: api.MediaJSON, body: limits(`"1e-2147483647 "`), want: path, gvk: pod},
		{media: api.MediaYAML, body: limits(`"1\x65-2147483647"`), want: path, gvk: pod},
		{media: api.MediaYAML, body: "spec: {hard: {cpu: '1e-2147483647'}}", want: "spec.hard.cpu: exponent", gvk: quota},
		{media: api.MediaCBOR, body: string(cbor), want: "spec.hard.cpu: exponent", gvk: quota},
		// Quantity is {1: text}, its map entry {1: key, 2: Quantity}, hard is {1: entry}.
		{
			media: api.MediaProtobuf,
			body:  "k8s\x00\n\x13\n\x02v1\x12\rResourceQuota\x12\x1c\x12\x1a\n\x18\n\x03cpu\x12\x11\n\x0f1e-000002147483",
			want:  "spec.hard: exponent",
			gvk:   quota,
		},
	} {
		_, err := objectCodec.Decode(test.media, []byte(test.body), test.gvk, nil, true)
		if err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s %.60q: got %v, want %s", test.media, test.body, err, test.want)
		}
	}
	for name, body := range map[string]string{
		// The value of the map entry has the wire type of a varint, and its length is the number.
		"wire type of a map value": "k8s\x00\n\x13\n\x02v1\x12\rResourceQuota\x12\x1c\x12\x1a\n\x18\n\x03cpu\x10\x11\n\x0f1e-000002147483",
		"unknown group":            "k8s\x00\n\x13\n\x02v1\x12\rResourceQuota\x12\x20\xa3\x06\xa4\x06\x12\x1a\n\x18\n\x03cpu\x12\x11\n\x0f1e-000002147483",
	} {
		if _, err := objectCodec.Decode(
			api.MediaProtobuf,
			[]byte(body),
			quota,
			nil,
			false,
		); err == nil || !strings.Contains(err.Error(), "malformed protobuf") {
			t.Errorf("Decode with %s = %v, want an error about malformed protobuf", name, err)
		}
	}
	tree := map[string]any{"spec": map[string]any{"hard": map[string]any{"cpu": "1e99999999"}}}
	if err := objectCodec.Checks.CheckTree(tree, quota); err == nil || !strings.HasPrefix(err.Error(), "spec.hard.cpu: exponent") {
		t.Errorf("CheckTree() = %v, want an error that starts with spec.hard.cpu: exponent", err)
	}
}

// TestDecodeAcceptsTextThatLooksExpensive checks that text of other types is accepted although it
// would be an invalid quantity, time or document.
func TestDecodeAcceptsTextThatLooksExpensive(t *testing.T) {
	_, objectCodec := newCodec(t)
	gvk := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	const body = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","creationTimestamp":"9999-12-31T23:59:59Z"},"data":{"a":"1e-2147483647","b":"\ud800","c":"9999-12-31T23:59:59-01:00"}}`
	if _, err := objectCodec.Decode(api.MediaJSON, []byte(body), gvk, nil, true); err != nil {
		t.Errorf("Decode(%s): got error %v, want none", body, err)
	}
	late := strings.Replace(body, "23:59:59Z", "23:59:59-01:00", 1)
	if _, err := objectCodec.Decode(api.MediaJSON, []byte(late), gvk, nil, true); err == nil ||
		!strings.HasPrefix(err.Error(), "metadata.creationTimestamp: time") {
		t.Errorf("time in the year 10000: got error %v, want one about metadata.creationTimestamp", err)
	}
}

// TestStoredExpensiveQuantityIsUndecodable checks that a value that another server stored is
// reported as undecodable instead of being parsed.
func TestStoredExpensiveQuantityIsUndecodable(t *testing.T) {
	catalog, objectCodec := newCodec(t)
	const value = "k8s\x00\n\x13\n\x02v1\x12\rResourceQuota\x12\x1c\x12\x1a\n\x18\n\x03cpu\x12\x11\n\x0f1e-002147483647"
	for _, kind := range catalog.Kinds() {
		if kind.Kind != "ResourceQuota" {
			continue
		}
		_, err := objectCodec.ForKind(kind).DecodeStored([]byte(value), 1)
		if undecodable := new(codec.UndecodableError); !errors.As(err, &undecodable) ||
			!strings.Contains(err.Error(), "exponent of quantity") {
			t.Errorf("got error %v, want an UndecodableError about the exponent of quantity", err)
		}
	}
}

// TestMutatedProtobufIsServedOrRejected checks that every object that is accepted after a change of
// one byte can be stored, read again and served as JSON.
func TestMutatedProtobufIsServedOrRejected(t *testing.T) {
	const mutations = 200 // of each kind
	catalog, objectCodec := newCodec(t)
	for i, kind := range storedKinds(catalog) {
		kindCodec := objectCodec.ForKind(kind)
		random := rand.New(rand.NewPCG(uint64(i), mutationSeed))
		obj := kind.New().(registry.Object)
		randomObjects(int64(i)+mutationSeed).NumElements(1, 2).NilChance(0.2).Fill(obj)
		whole, err := objectCodec.Encode(obj, kind.GVK(), api.MediaProtobuf, false)
		if err != nil {
			continue // not every random object has a protobuf form
		}
		for range mutations {
			body := bytes.Clone(whole)
			body[4+random.IntN(len(body)-4)] = byte(random.Uint32())
			d, err := objectCodec.Decode(api.MediaProtobuf, body, kind.GVK(), nil, false)
			got, ok := d.Object.(registry.Object)
			if err != nil || !ok || d.GVK != kind.GVK() {
				continue
			}
			value, err := kindCodec.EncodeStored(got)
			if err != nil {
				t.Fatalf("%s: %x was accepted but cannot be stored: %v", kind.GVK(), body, err)
			}
			if kindCodec.CheckStored(value) != nil {
				continue // the write is rejected
			}
			if _, err := kindCodec.DecodeStored(value, 1); err != nil {
				t.Fatalf("%s: %x was stored but cannot be read: %v", kind.GVK(), body, err)
			}
			text, err := kindCodec.JSONFrame(codec.Added, codec.Item{Stored: value, Revision: 1})
			if err != nil || !json.Valid(text) || !utf8.Valid(text) {
				t.Fatalf("%s: %x was stored but cannot be served: error %v, JSON %s", kind.GVK(), body, err, text)
			}
		}
	}
}

const mutationSeed = 1

// TestDecodeErrorsNameField checks that errors and warnings contain the path of the field.
func TestDecodeErrorsNameField(t *testing.T) {
	_, objectCodec := newCodec(t)
	gvk := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	_, err := objectCodec.Decode(api.MediaJSON, []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":"a"}`), gvk, nil, false)
	if err == nil || !strings.Contains(err.Error(), "ConfigMap.metadata of type v1.ObjectMeta") {
		t.Errorf("Decode of text as metadata = %v, want an error about ConfigMap.metadata", err)
	}
	decoded, err := objectCodec.Decode(
		api.MediaJSON,
		[]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","x":1},"data":{"a":"1","a":"2"}}`),
		gvk,
		nil,
		true,
	)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(decoded.Unknown); got != `[duplicate field "data.a" unknown field "metadata.x"]` &&
		got != `[unknown field "metadata.x" duplicate field "data.a"]` {
		t.Errorf("unknown fields = %s, want duplicate data.a and unknown metadata.x", got)
	}
}
