package v1_test

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// readRecording returns definitions as JSON and protobuf, encoded by the library of the reference
// server.
func readRecording(t testing.TB) (out []struct {
	JSON  json.RawMessage
	Proto []byte
}) {
	t.Helper()
	data, err := os.ReadFile("testdata/recorded.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	if len(out) == 0 {
		t.Fatal("no recorded definitions, want one")
	}
	return out
}

// normalizeEscapes decodes JSON and encodes it again, so that texts that differ only in their escapes
// become equal.
func normalizeEscapes(t *testing.T, data []byte) string {
	t.Helper()
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestEncodingsEqualReference checks that definitions have the same protobuf and JSON bytes as in the
// library of the reference.
func TestEncodingsEqualReference(t *testing.T) {
	for i, test := range readRecording(t) {
		var definition v1.CustomResourceDefinition
		if err := json.Unmarshal(test.JSON, &definition); err != nil {
			t.Fatal(err)
		}
		encoded, err := definition.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(encoded, test.Proto) {
			t.Errorf("case %d: protobuf differs (%d bytes, want %d)", i, len(encoded), len(test.Proto))
		}
		if definition.Size() != len(test.Proto) {
			t.Errorf("case %d: size %d, want %d", i, definition.Size(), len(test.Proto))
		}
		var back v1.CustomResourceDefinition
		if err := back.Unmarshal(test.Proto); err != nil {
			t.Fatal(err)
		}
		jsonText, err := json.Marshal(&back)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := normalizeEscapes(t, jsonText), normalizeEscapes(t, test.JSON); got != want {
			t.Errorf("case %d: JSON\n got %s\nwant %s", i, got, want)
		}
	}
}

// TestDeepCopySharesOnlySchemas checks that changing anything but the schemas of a copy leaves the
// original unchanged.
func TestDeepCopySharesOnlySchemas(t *testing.T) {
	for i, test := range readRecording(t) {
		var definition v1.CustomResourceDefinition
		if err := definition.Unmarshal(test.Proto); err != nil {
			t.Fatal(err)
		}
		copied := definition.DeepCopyObject().(*v1.CustomResourceDefinition)
		if !reflect.DeepEqual(&definition, copied) {
			t.Fatalf("case %d: got a copy that differs from the original", i)
		}
		overwriteAll(reflect.ValueOf(copied).Elem())
		encoded, err := definition.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(encoded, test.Proto) {
			t.Errorf("case %d: got the original changed with its copy, want it unchanged", i)
		}
	}
}

// overwriteAll changes everything reachable from value except schemas.
func overwriteAll(value reflect.Value) {
	switch value.Kind() {
	case reflect.Pointer:
		if _, is := value.Interface().(*v1.JSONSchemaProps); !is && !value.IsNil() {
			overwriteAll(value.Elem())
		}
	case reflect.Struct:
		for i := 0; i < value.NumField(); i++ {
			if value.Type().Field(i).IsExported() {
				overwriteAll(value.Field(i))
			}
		}
	case reflect.Slice:
		for i := 0; i < value.Len(); i++ {
			overwriteAll(value.Index(i))
		}
	case reflect.Map:
		for _, k := range value.MapKeys() {
			value.SetMapIndex(k, reflect.Value{})
		}
	case reflect.String:
		value.SetString("!")
	case reflect.Bool:
		value.SetBool(!value.Bool())
	case reflect.Uint8:
		value.SetUint('!')
	case reflect.Int32, reflect.Int64:
		value.SetInt(value.Int() + 1)
	case reflect.Float64:
		value.SetFloat(value.Float() + 1)
	}
}

// TestDefinitionSurvivesSerializers checks that a definition survives a round trip through the serializers of
// apimachinery.
func TestDefinitionSurvivesSerializers(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	gvk := v1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
	for name, serializer := range map[string]runtime.Serializer{
		"protobuf": protobuf.NewSerializer(scheme, scheme),
		"json":     kjson.NewSerializerWithOptions(kjson.DefaultMetaFactory, scheme, scheme, kjson.SerializerOptions{Strict: true}),
		"yaml":     kjson.NewSerializerWithOptions(kjson.DefaultMetaFactory, scheme, scheme, kjson.SerializerOptions{Yaml: true}),
	} {
		t.Run(name, func(t *testing.T) {
			for i, recorded := range readRecording(t) {
				var definition v1.CustomResourceDefinition
				if err := definition.Unmarshal(recorded.Proto); err != nil {
					t.Fatal(err)
				}
				definition.SetGroupVersionKind(gvk)
				var buf bytes.Buffer
				if err := serializer.Encode(&definition, &buf); err != nil {
					t.Fatal(err)
				}
				back, got, err := serializer.Decode(buf.Bytes(), nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				back.GetObjectKind().SetGroupVersionKind(gvk)
				if *got != gvk {
					t.Errorf("case %d: got kind %s, want %s", i, got, gvk)
				}
				want, _ := json.Marshal(&definition)
				decoded, _ := json.Marshal(back)
				if !bytes.Equal(want, decoded) {
					t.Errorf("case %d:\n got %s\nwant %s", i, decoded, want)
				}
			}
		})
	}
}

// TestListAndReviewKeepTheirOwnForm checks that lists and reviews are encoded as a whole, although
// they embed types with their own protobuf methods.
func TestListAndReviewKeepTheirOwnForm(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	serializer := protobuf.NewSerializer(scheme, scheme)
	list := &v1.CustomResourceDefinitionList{Items: make([]v1.CustomResourceDefinition, 2)}
	list.ResourceVersion = "7"
	list.Items[0].Name = "a"
	list.Items[1].Name = "b"
	list.SetGroupVersionKind(v1.SchemeGroupVersion.WithKind("CustomResourceDefinitionList"))
	review := &v1.ConversionReview{
		Request: &v1.ConversionRequest{
			UID:               types.UID("u"),
			DesiredAPIVersion: "a/v1",
			Objects:           []runtime.RawExtension{{Raw: []byte(`{"a":1}`)}},
		},
		Response: &v1.ConversionResponse{UID: "u"},
	}
	review.SetGroupVersionKind(v1.SchemeGroupVersion.WithKind("ConversionReview"))
	for _, obj := range []runtime.Object{list, review} {
		var buf bytes.Buffer
		if err := serializer.Encode(obj, &buf); err != nil {
			t.Fatal(err)
		}
		back, _, err := serializer.Decode(buf.Bytes(), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		back.GetObjectKind().SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
		if !reflect.DeepEqual(obj, back) {
			t.Errorf("got %v\nwant %v", back, obj)
		}
		if !reflect.DeepEqual(obj, obj.DeepCopyObject()) {
			t.Errorf("copy of %v differs, want %v", obj, obj.DeepCopyObject())
		}
	}
}

// TestUnionsKeepTheirJSONForm checks the JSON of the types that hold one of two alternatives, such as a schema
// or a boolean.
func TestUnionsKeepTheirJSONForm(t *testing.T) {
	for _, test := range []struct {
		text string
		want string // empty if the text is encoded unchanged
	}{
		{text: `{"items":{"type":"string"}}`},
		{text: `{"items":[{"type":"string"},{"type":"integer"}]}`},
		{text: `{"additionalProperties":true}`},
		{text: `{"additionalProperties":false}`},
		{text: `{"additionalProperties":{"type":"string"}}`},
		{text: `{"dependencies":{"a":["b"],"c":{"type":"string"}}}`},
		{text: `{"default":{"a": [1, null]},"enum":["x",null,1.50]}`, want: `{"default":{"a":[1,null]},"enum":["x",null,1.50]}`},
		{text: `{"default":null}`, want: `{}`},
		{text: `{"x-kubernetes-validations":[{"rule":"self == 1"}]}`},
	} {
		var props v1.JSONSchemaProps
		if err := json.Unmarshal([]byte(test.text), &props); err != nil {
			t.Fatalf("%s: %v", test.text, err)
		}
		got, err := json.Marshal(&props)
		if err != nil {
			t.Fatal(err)
		}
		if test.want == "" {
			test.want = test.text
		}
		if string(got) != test.want {
			t.Errorf("%s: got %s, want %s", test.text, got, test.want)
		}
	}
	var props v1.JSONSchemaProps
	if err := json.Unmarshal([]byte(`{"additionalProperties":"x"}`), &props); err == nil {
		t.Error("string: error = nil, want one")
	}
}

// TestStrategicMergeUsesRuleAsKey checks that a strategic merge patch merges validation rules by the field rule.
func TestStrategicMergeUsesRuleAsKey(t *testing.T) {
	schema, err := strategicpatch.NewPatchMetaFromStruct(v1.JSONSchemaProps{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := strategicpatch.StrategicMergePatchUsingLookupPatchMeta(
		[]byte(`{"x-kubernetes-validations":[{"rule":"a"},{"rule":"b"}]}`),
		[]byte(`{"x-kubernetes-validations":[{"rule":"b","message":"m"}]}`), schema)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"x-kubernetes-validations":[{"rule":"a"},{"message":"m","rule":"b"}]}`; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// FuzzUnmarshal checks that every message that can be decoded can be encoded, with the same bytes each
// time.
func FuzzUnmarshal(f *testing.F) {
	for _, recorded := range readRecording(f) {
		if len(recorded.Proto) < 1000 {
			f.Add(recorded.Proto)
		}
	}
	f.Add([]byte{0x0b, 0x0b, 0x0c, 0x0c})
	f.Fuzz(func(t *testing.T, data []byte) {
		var definition v1.CustomResourceDefinition
		if err := definition.Unmarshal(data); err != nil {
			return
		}
		encoded, err := definition.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		var back v1.CustomResourceDefinition
		if err := back.Unmarshal(encoded); err != nil {
			t.Fatalf("decode after encode: %v", err)
		}
		again, err := back.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(encoded, again) {
			t.Fatal("encoding twice gives different bytes")
		}
	})
}
