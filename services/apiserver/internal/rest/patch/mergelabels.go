package patch

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"binnacle/services/apiserver/internal/json/tape"
	"binnacle/services/apiserver/internal/registry"
)

// mergeLabels merges a merge patch without repeated keys into a copy of an object without a Go type
// if it changes only labels and annotations. Such patches are the most frequent ones, and the
// rest of the object need not be encoded and decoded. It returns false for every other patch, and
// for an object that lacks the defaults of its version.
func mergeLabels(old *unstructured.Unstructured, patch *tape.Doc, defaulted func() bool) (registry.Object, bool) {
	metadata := patch.Find(tape.Root, "metadata")
	existing, ok := old.Object["metadata"].(map[string]any)
	if !ok || metadata == tape.None || patch.Len(tape.Root) != 1 || patch.Kind(metadata) != tape.Object {
		return nil, false
	}
	merged := map[string]map[string]any{}
	for key, end := patch.First(metadata), patch.Next(metadata); key < end; key = patch.Next(patch.Value(key)) {
		name := patch.String(key)
		if name != "labels" && name != "annotations" {
			return nil, false
		}
		if merged[name], ok = mergedStrings(existing[name], patch.Any(patch.Value(key))); !ok {
			return nil, false
		}
	}
	if !defaulted() {
		return nil, false
	}
	obj := old.DeepCopy()
	target := obj.Object["metadata"].(map[string]any)
	for name, values := range merged {
		if len(values) == 0 {
			delete(target, name)
			continue
		}
		target[name] = values
	}
	return obj, true
}

// mergedStrings returns a map after a patch. It returns false unless the patch is an object whose
// values are strings or null.
func mergedStrings(existing, patch any) (map[string]any, bool) {
	values, ok := existing.(map[string]any)
	if !ok && existing != nil {
		return nil, false
	}
	changes, ok := patch.(map[string]any)
	if !ok {
		return nil, false
	}
	out := make(map[string]any, len(values)+len(changes))
	maps.Copy(out, values)
	for name, v := range changes {
		switch v.(type) {
		case nil:
			delete(out, name)
		case string:
			out[name] = v
		default:
			return nil, false
		}
	}
	return out, true
}
