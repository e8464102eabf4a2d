package olderversions_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/api/olderversions"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
)

// storedCase is a stored object and the response of Kubernetes 1.33: an object of the requested
// version, or an error.
type storedCase struct {
	Resource string // group/version/resource of the request
	Stored   json.RawMessage
	Want     map[string]any
	Error    string
}

// TestStoredObjectsReadLikeKubernetes checks that objects of all versions are read as by Kubernetes,
// from JSON and from protobuf.
func TestStoredObjectsReadLikeKubernetes(t *testing.T) {
	catalog, err := builtin.AllKinds(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	objectCodec, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	converter := olderversions.New(catalog, objectCodec)
	for _, storedCase := range readCases(t) {
		kind := catalog.Resource(resourceOf(storedCase.Resource))
		if kind == nil {
			t.Fatalf("%s: no resource, want one", storedCase.Resource)
		}
		values := map[string][]byte{"JSON": storedCase.Stored}
		if encoded := asProtobuf(t, storedCase.Stored); encoded != nil {
			values["protobuf"] = encoded
		}
		for form, value := range values {
			got, err := read(converter, objectCodec.ForKind(kind), kind, value)
			wantPrefix, _, _ := strings.Cut(storedCase.Error, " in scheme")
			switch {
			case err != nil && (wantPrefix == "" || !strings.HasPrefix(err.Error(), wantPrefix)):
				t.Errorf("%s of %s: got error %v, want one that begins with %q, or none if that is empty", form, storedCase.Stored, err, wantPrefix)
			case err == nil && !reflect.DeepEqual(got, storedCase.Want):
				t.Errorf("%s of %s: got\n%s, want\n%s", form, storedCase.Stored, asText(got), asText(storedCase.Want))
			}
		}
	}
}

// TestConvertedValuesAreNotConvertedAgain checks that the second of two conversions changes nothing.
func TestConvertedValuesAreNotConvertedAgain(t *testing.T) {
	catalog, err := builtin.AllKinds(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	objectCodec, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	converter := olderversions.New(catalog, objectCodec)
	for _, storedCase := range readCases(t) {
		resource := catalog.Resource(resourceOf(storedCase.Resource)).StoredGroupResource()
		once, _, err := converter.Convert(resource, storedCase.Stored)
		if err != nil {
			continue // TestStoredObjectsReadLikeKubernetes checks the error
		}
		twice, converted, err := converter.Convert(resource, once)
		if err != nil {
			t.Errorf("%s: second Convert = %v, want no error", storedCase.Stored, err)
			continue
		}
		if converted {
			t.Errorf("%s: second Convert reports a conversion, want none", storedCase.Stored)
		}
		if !bytes.Equal(once, twice) {
			t.Errorf("%s: second Convert = %s, want %s", storedCase.Stored, twice, once)
		}
	}
}

// readCases returns the recorded cases of testdata/cases.jsonl.
func readCases(t *testing.T) (cases []storedCase) {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", "cases.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var c storedCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		cases = append(cases, c)
	}
	if lines.Err() != nil || len(cases) < 100 {
		t.Fatalf("got %d cases, %v; want at least 100, no error", len(cases), lines.Err())
	}
	return cases
}

// resourceOf parses group/version/resource, or version/resource of the core group.
func resourceOf(path string) schema.GroupVersionResource {
	parts := strings.Split(path, "/")
	if len(parts) == 2 {
		parts = append([]string{""}, parts...)
	}
	return schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}
}

// asProtobuf encodes a JSON object as stored protobuf. It returns nil for an object of a type that
// client-go does not know.
func asProtobuf(t *testing.T, data []byte) []byte {
	t.Helper()
	obj, gvk, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
	if err != nil {
		return nil
	}
	if _, ok := obj.(interface{ Marshal() ([]byte, error) }); !ok {
		return nil
	}
	obj.GetObjectKind().SetGroupVersionKind(*gvk)
	b, err := runtime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), obj)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// read converts and decodes a stored object. It returns the object without the fields that the
// server sets.
func read(
	converter *olderversions.Converter,
	coder *codec.KindCodec,
	kind *registry.Kind,
	stored []byte,
) (map[string]any, error) {
	value, _, err := converter.Convert(kind.StoredGroupResource(), stored)
	if err != nil {
		return nil, err
	}
	obj, err := coder.DecodeStored(value, 0)
	if err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(kind.GVK())
	data, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, err
	}
	for _, name := range []string{"creationTimestamp", "resourceVersion"} {
		delete(out["metadata"].(map[string]any), name)
	}
	return out, nil
}

// asText returns a value as JSON.
func asText(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}
