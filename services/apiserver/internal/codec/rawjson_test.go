package codec_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/codec/doccheck"
	"binnacle/services/apiserver/internal/json/formats"
	"binnacle/services/apiserver/internal/registry"
	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// nestedJSON returns a JSON document of a depth.
func nestedJSON(depth int) string {
	return strings.Repeat(`{"f:a":`, depth-1) + "{}" + strings.Repeat("}", depth-1)
}

// rawHolder makes objects that hold a JSON document in a field.
type rawHolder struct {
	gvk schema.GroupVersionKind
	// level is the depth of the document in the JSON of the object.
	level int
	make  func(raw []byte) registry.Object
}

// rawHolders returns an example of each Go type that holds a JSON document, by the path of the
// document in errors.
func rawHolders() map[string]rawHolder {
	return map[string]rawHolder{
		"metadata.managedFields.fieldsV1": {
			gvk:   corev1.SchemeGroupVersion.WithKind("ConfigMap"),
			level: 4,
			make: func(raw []byte) registry.Object {
				entry := metav1.ManagedFieldsEntry{FieldsV1: &metav1.FieldsV1{Raw: raw}}
				return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{entry}}}
			},
		},
		"data": {
			gvk:   appsv1.SchemeGroupVersion.WithKind("ControllerRevision"),
			level: 1,
			make: func(raw []byte) registry.Object {
				return &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: raw}}
			},
		},
		"spec.versions.schema.openAPIV3Schema.default": {
			gvk:   apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"),
			level: 6,
			make: func(raw []byte) registry.Object {
				schema := &apiextensionsv1.JSONSchemaProps{Default: &apiextensionsv1.JSON{Raw: raw}}
				return &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
					Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
						{Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema}},
					},
				}}
			},
		},
	}
}

// TestRawJSONIsBounded checks that the bounds of a document include the JSON that a field holds, in
// each encoding.
func TestRawJSONIsBounded(t *testing.T) {
	_, objectCodec := newCodec(t)
	for path, holder := range rawHolders() {
		for name, test := range map[string]struct {
			raw  string
			want string // part of the error; empty for success
		}{
			"ordinary":        {raw: `{"f:data":{".":{},"f:a":{}}}`},
			"deep":            {raw: nestedJSON(doccheck.MaxDepth - 2*holder.level)},
			"too deep":        {raw: nestedJSON(doccheck.MaxDepth), want: "nested more than 500 levels deep"},
			"far too deep":    {raw: nestedJSON(9_998), want: "nested more than 500 levels deep"},
			"many containers": {raw: `[` + strings.Repeat(`{},`, doccheck.MaxContainers) + `{}]`, want: "more than 131072 lists and objects"},
			"many values":     {raw: `[` + strings.Repeat(`1,`, doccheck.MaxValues) + `1]`, want: "more than 262144 values"},
			"long key":        {raw: `{"` + strings.Repeat("k", doccheck.MaxKey+1) + `":1}`, want: "field name of more than"},
		} {
			obj := holder.make([]byte(test.raw))
			obj.GetObjectKind().SetGroupVersionKind(holder.gvk)
			bodies := map[string][]byte{}
			var err error
			if bodies[api.MediaProtobuf], err = objectCodec.Encode(obj, holder.gvk, api.MediaProtobuf, false); err != nil {
				t.Fatal(err)
			}
			if name != "far too deep" { // the encoder of JSON rejects it
				if bodies[api.MediaJSON], err = json.Marshal(obj); err != nil {
					t.Fatal(err)
				}
				if bodies[api.MediaCBOR], err = formats.JSONToCBOR(bodies[api.MediaJSON]); err != nil {
					t.Fatal(err)
				}
			}
			for media, body := range bodies {
				_, err := objectCodec.Decode(media, body, holder.gvk, nil, false)
				if media == api.MediaCBOR && err != nil && strings.Contains(err.Error(), "cbor: exceeded max") {
					continue // the decoder of CBOR has lower bounds
				}
				if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
					t.Errorf("%s: Decode of %s in %s: got error %v, want %q", path, name, media, err, test.want)
				}
			}
		}
	}
}

// TestDeepRawJSONIsNeitherStoredNorServed checks that JSON in a field that clients could not read in
// a list is rejected before it is stored, and that a stored value with such JSON is corrupt.
func TestDeepRawJSONIsNeitherStoredNorServed(t *testing.T) {
	catalog, objectCodec := newCodec(t)
	for path, holder := range rawHolders() {
		kindCodec := objectCodec.ForKind(catalog.Kind(holder.gvk))
		for _, test := range []struct {
			depth int
			valid bool
		}{
			{depth: 2, valid: true},
			{depth: 2 * doccheck.MaxDepth, valid: true}, // deeper than in a request
			{depth: 9_900, valid: false},
		} {
			value, err := kindCodec.EncodeStored(holder.make([]byte(nestedJSON(test.depth))))
			if err != nil {
				t.Fatal(err)
			}
			err = kindCodec.CheckStored(value)
			if test.valid != (err == nil) || err != nil && !errors.As(err, new(*doccheck.ValueError)) {
				t.Errorf("%s, depth %d: CheckStored() = %v, want success: %t, otherwise a ValueError",
					path, test.depth, err, test.valid)
			}
			if _, err := kindCodec.Attributes(value); test.valid != (err == nil) {
				t.Errorf("%s, depth %d: Attributes() = %v, want success: %t", path, test.depth, err, test.valid)
			}
			if !test.valid {
				continue
			}
			if text, err := kindCodec.JSONFrame(codec.Added, codec.Item{Stored: value, Revision: 1}); err != nil || !json.Valid(text) {
				t.Errorf("%s, depth %d: JSONFrame: got error %v, want valid JSON", path, test.depth, err)
			}
		}
	}
}
