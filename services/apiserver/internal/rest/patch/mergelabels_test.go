package patch

import (
	"encoding/json"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"binnacle/services/apiserver/internal/json/objectmeta"
	"binnacle/services/apiserver/internal/json/tape"
)

// labelsOrOther draws labels or annotations with some of the values, or sometimes null, a string or a
// list in their place. A value that is repeated is drawn more often.
func labelsOrOther(values ...any) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		if rapid.IntRange(0, 7).Draw(t, "odd") == 0 {
			return rapid.SampledFrom([]any{nil, "x", []any{}}).Draw(t, "else")
		}
		return rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c"}), rapid.SampledFrom(values), 0, 3).Draw(t, "strings")
	})
}

// decodeObject returns a JSON object as a tree.
func decodeObject(t *rapid.T, doc []byte) map[string]any {
	d, err := tape.Parse(doc)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Release()
	return d.Any(tape.Root).(map[string]any)
}

// encodeJSON returns the JSON of a value.
func encodeJSON(t *rapid.T, value any) []byte {
	b, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestPatchedLabelsMatchGeneralPath checks that the fast path for patches of labels and annotations
// gives the same result as the general one and does not change the old object.
func TestPatchedLabelsMatchGeneralPath(t *testing.T) {
	fastPaths := 0
	rapid.Check(t, func(rt *rapid.T) {
		meta := map[string]any{"name": "n", "resourceVersion": "7", "finalizers": []any{"f"}}
		for _, name := range []string{"labels", "annotations"} {
			if m, ok := labelsOrOther("x", "ü<").Draw(rt, name).(map[string]any); ok && len(m) > 0 {
				meta[name] = m
			}
		}
		doc := encodeJSON(rt, map[string]any{"kind": "K", "metadata": meta, "spec": map[string]any{"a": []any{1}}})
		fields := map[string]any{}
		// Only labels and annotations have a fast path, so that they are drawn more often.
		for _, name := range rapid.SliceOfN(rapid.SampledFrom([]string{
			"labels", "annotations", "labels", "annotations", "finalizers", "uid",
		}), 0, 2).Draw(rt, "fields") {
			fields[name] = labelsOrOther("y", nil, nil, "x", "y", 7).Draw(rt, "patched "+name)
		}
		raw := encodeJSON(rt, map[string]any{"metadata": fields})
		p, err := Decode(types.MergePatchType, raw, true)
		if err != nil {
			rt.Fatal(err)
		}
		old := &unstructured.Unstructured{Object: decodeObject(rt, doc)}
		m := p.strategy.(*mergePatch)
		obj, ok := mergeLabels(old, m.doc, func() bool { return true })
		if !reflect.DeepEqual(old.Object, decodeObject(rt, doc)) {
			rt.Fatalf("%s: got the old object %v changed, want it unchanged", raw, old.Object)
		}
		if !ok {
			return
		}
		fastPaths++
		merged, err := m.applyTo(doc)
		if err != nil {
			rt.Fatal(err)
		}
		want := decodeObject(rt, merged)
		clean, _, err := objectmeta.Clean(encodeJSON(rt, want["metadata"]), false, false)
		if err != nil {
			rt.Fatalf("%s into %s is rejected by the general path: %v", raw, doc, err)
		}
		want["metadata"] = decodeObject(rt, clean)
		got := obj.(*unstructured.Unstructured).Object
		got["metadata"] = withoutNullTime(got["metadata"].(map[string]any))
		want["metadata"] = withoutNullTime(want["metadata"].(map[string]any))
		if !reflect.DeepEqual(got, want) {
			rt.Fatalf("%s into %s: got %v, want %v", raw, doc, got, want)
		}
	})
	if fastPaths == 0 {
		t.Error("no patch of metadata took the fast path")
	}
}

// withoutNullTime removes a null creationTimestamp, which cleaning adds.
func withoutNullTime(meta map[string]any) map[string]any {
	if meta["creationTimestamp"] == nil {
		delete(meta, "creationTimestamp")
	}
	return meta
}
