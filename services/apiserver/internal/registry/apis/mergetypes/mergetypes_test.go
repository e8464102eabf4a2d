package mergetypes_test

import (
	"bytes"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/applyconfigurations"
	smd "sigs.k8s.io/structured-merge-diff/v4/schema"

	"binnacle/services/apiserver/internal/registry/apis/mergetypes"
)

// TestTypesAreUpToDate checks that the embedded schema is the one of client-go.
func TestTypesAreUpToDate(t *testing.T) {
	want := applyconfigurations.NewTypeConverter(runtime.NewScheme()).TypeResolver.Type("io.k8s.api.core.v1.Pod").Schema
	got := mergetypes.Schema()
	if got == nil || want == nil {
		t.Fatalf("got schema %v, want %v", got, want)
	}
	if len(got.Types) != len(want.Types) {
		t.Errorf("got %d types, want %d", len(got.Types), len(want.Types))
	}
	for i := range min(len(got.Types), len(want.Types)) {
		if g, w := &got.Types[i], &want.Types[i]; g.Name != w.Name || !sameAtom(&g.Atom, &w.Atom) {
			t.Fatalf("type %d: got\n%+v\nwant\n%+v\nrun go generate in package mergetypes", i, g, w)
		}
	}
}

// sameAtom compares the exported content of schemas, without their caches.
func sameAtom(a, b *smd.Atom) bool {
	if (a.Map == nil) != (b.Map == nil) {
		return false
	}
	if a.Map != nil && !(reflect.DeepEqual(a.Map.Fields, b.Map.Fields) && reflect.DeepEqual(a.Map.ElementType, b.Map.ElementType) &&
		reflect.DeepEqual(a.Map.Unions, b.Map.Unions) && a.Map.ElementRelationship == b.Map.ElementRelationship) {
		return false
	}
	return reflect.DeepEqual(a.Scalar, b.Scalar) && reflect.DeepEqual(a.List, b.List)
}

// TestDefaultsSurviveWriteAndRead checks that defaults of all types are decoded as they were encoded.
func TestDefaultsSurviveWriteAndRead(t *testing.T) {
	fields := func() []smd.StructField {
		return []smd.StructField{
			{Name: "text", Default: "TCP"}, {Name: "number", Default: 1}, {Name: "switch", Default: false},
			{Name: "map", Default: map[any]any{}}, {Name: "nothing"}, {Name: "empty", Default: ""},
		}
	}
	var encoded bytes.Buffer
	if err := mergetypes.Write(
		&encoded,
		[]smd.TypeDef{{Name: "a"}, {Name: "b", Atom: smd.Atom{Map: &smd.Map{Fields: fields()}}}},
	); err != nil {
		t.Fatal(err)
	}
	types, err := mergetypes.Read(&encoded)
	if err != nil {
		t.Fatal(err)
	}
	if got := types[1].Map.Fields; !reflect.DeepEqual(got, fields()) {
		t.Errorf("got %+v, want %+v", got, fields())
	}
}

// TestUnsupportedDefaultsAreRejected checks that Write rejects defaults other than scalars and empty maps.
func TestUnsupportedDefaultsAreRejected(t *testing.T) {
	for name, value := range map[string]any{"a list": []any{}, "a map with an entry": map[any]any{"a": 1}} {
		types := []smd.TypeDef{{Name: "a", Atom: smd.Atom{Map: &smd.Map{Fields: []smd.StructField{{Name: "f", Default: value}}}}}}
		if err := mergetypes.Write(new(bytes.Buffer), types); err == nil {
			t.Errorf("%s: error = nil, want one", name)
		}
	}
}
