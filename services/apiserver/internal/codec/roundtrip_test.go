package codec_test

import (
	"slices"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/randfill"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// randomObjects returns a filler for objects that every form can express: times of whole seconds,
// canonical quantities, valid embedded JSON.
func randomObjects(seed int64) *randfill.Filler {
	raw := []byte(`{"apiVersion":"example.com/v1","kind":"Any","list":[1,"two",null]}`)
	return randfill.NewWithSeed(seed).NilChance(0.4).NumElements(1, 1).MaxDepth(12).Funcs(
		func(t *metav1.TypeMeta, _ randfill.Continue) { *t = metav1.TypeMeta{} },
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewMilliQuantity(c.Int63n(1e6), resource.DecimalSI)
			_ = q.String()
		},
		func(r *runtime.RawExtension, _ randfill.Continue) { *r = runtime.RawExtension{Raw: raw} },
		func(j *apiextensionsv1.JSON, _ randfill.Continue) { j.Raw = []byte(`{"any":["json"]}`) },
		func(j *apiextensionsv1.JSONSchemaPropsOrArray, c randfill.Continue) {
			*j = apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{}}
			c.Fill(&j.Schema.Type)
		},
		func(j *apiextensionsv1.JSONSchemaPropsOrBool, c randfill.Continue) {
			*j = apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &apiextensionsv1.JSONSchemaProps{}}
			c.Fill(&j.Schema.Type)
		},
		func(j *apiextensionsv1.JSONSchemaPropsOrStringArray, c randfill.Continue) {
			*j = apiextensionsv1.JSONSchemaPropsOrStringArray{Property: []string{c.String(0)}}
		},
		func(f *metav1.FieldsV1, _ randfill.Continue) { f.Raw = []byte(`{"f:spec":{"f:replicas":{}}}`) },
	)
}

// TestRandomObjectsSurviveEveryForm checks that random objects of all kinds are unchanged after
// they were encoded and decoded in each media type, and after they were stored.
func TestRandomObjectsSurviveEveryForm(t *testing.T) {
	const rounds = 3
	catalog, objectCodec := newCodec(t)
	if n := len(catalog.Kinds()); n != 61 {
		t.Errorf("got %d kinds, want 61", n)
	}
	for _, kind := range catalog.Kinds() {
		t.Run(kind.GVK().String(), func(t *testing.T) {
			for seed := range int64(rounds) {
				obj := kind.New().(registry.Object)
				randomObjects(seed).Fill(obj)
				for _, media := range []string{api.MediaJSON, api.MediaYAML, api.MediaProtobuf, api.MediaCBOR} {
					body, err := objectCodec.Encode(obj.DeepCopyObject(), kind.GVK(), media, false)
					if err != nil {
						t.Fatalf("%s: %v", media, err)
					}
					checkEqual(t, media, obj, decode(t, objectCodec, media, body, kind.GVK()))
				}
				if !kind.Virtual {
					checkStored(t, objectCodec, objectCodec.ForKind(kind), obj)
				}
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

// checkStored stores an object as an older server might have done and reads it with its defaults.
// If the stored form is another type, it may lose fields that it cannot express, once.
func checkStored(t *testing.T, objectCodec *codec.Codec, kindCodec *codec.KindCodec, obj registry.Object) {
	t.Helper()
	var value []byte
	storeAndRead := func(obj registry.Object) registry.Object {
		var err error
		if value, err = kindCodec.EncodeStored(obj); err != nil {
			t.Fatal(err)
		}
		back, err := kindCodec.DecodeStored(value, 42)
		if err != nil {
			t.Fatal(err)
		}
		return back
	}
	if kindCodec.Kind.Stored.New != nil {
		obj = storeAndRead(obj)
	}
	want := obj.DeepCopyObject().(registry.Object)
	if kindCodec.Kind.Default != nil {
		kindCodec.Kind.Default(want)
	}
	if kindCodec.Kind.AfterDecode != nil {
		kindCodec.Kind.AfterDecode(want)
	}
	want.SetResourceVersion("42")
	want.SetSelfLink("")
	checkEqual(t, "store", want, storeAndRead(obj))
	if kindCodec.Kind.Stored.JSON {
		return
	}
	// Protobuf cannot express the types of embedded objects.
	body, err := objectCodec.Encode(want.DeepCopyObject(), kindCodec.Kind.GVK(), api.MediaProtobuf, false)
	if err != nil {
		t.Fatal(err)
	}
	want = decode(t, objectCodec, api.MediaProtobuf, body, kindCodec.Kind.GVK())
	defaulted, err := kindCodec.EncodeStored(want)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string][]byte{"as stored": value, "with its defaults": defaulted} {
		var positions atomic.Uint64
		for _, read := range []string{"first protobuf read ", "second protobuf read "} {
			body, err := kindCodec.AppendProto(nil, codec.Item{Stored: slices.Clip(value), Revision: 42, Positions: &positions})
			if err != nil {
				t.Fatal(err)
			}
			checkEqual(t, read+name, want, decode(t, objectCodec, api.MediaProtobuf, body, kindCodec.Kind.GVK()))
		}
	}
}
