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
	have, ok := old.Object["metadata"].(map[string]any)
	if !ok || metadata == tape.None || patch.Len(tape.Root) != 1 || patch.Kind(metadata) != tape.Object {
		return nil, false
	}
	merged := map[string]map[string]any{}
	for key, end := patch.First(metadata), patch.Next(metadata); key < end; key = patch.Next(patch.Value(key)) {
		name := patch.String(key)
		if name != "labels" && name != "annotations" {
			return nil, false
		}
		if merged[name], ok = mergedStrings(have[name], patch.Any(patch.Value(key))); !ok {
			return nil, false
		}
	}
	if !defaulted() {
		return nil, false
	}
	obj := old.DeepCopy()
	have = obj.Object["metadata"].(map[string]any)
	for name, values := range merged {
		if len(values) == 0 {
			delete(have, name)
			continue
		}
		have[name] = values
	}
	return obj, true
}

// mergedStrings returns a map after a patch. It returns false unless the patch is an object whose
// values are strings or null.
func mergedStrings(have, patch any) (map[string]any, bool) {
	was, ok := have.(map[string]any)
	changes, isObject := patch.(map[string]any)
	if !ok && have != nil || !isObject {
		return nil, false
	}
	out := make(map[string]any, len(was)+len(changes))
	maps.Copy(out, was)
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
