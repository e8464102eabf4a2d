package meta

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"binnacle/services/apiserver/internal/registry"
)

// withoutFieldSets returns the metadata of an object for validation. For a custom resource, its
// managedFields have no field sets: no rule reads them, and decoding them takes long. It returns the
// object itself if it has a Go type, or if an entry of managedFields is malformed.
func withoutFieldSets(obj registry.Object) metav1.Object {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj
	}
	meta, _ := u.Object["metadata"].(map[string]any)
	entryTrees, ok := meta["managedFields"].([]any)
	if !ok {
		return obj
	}
	entries := make([]metav1.ManagedFieldsEntry, len(entryTrees))
	for i, tree := range entryTrees {
		if entries[i], ok = decodeEntryWithoutFields(tree); !ok {
			return obj
		}
	}
	return documentWithoutFieldSets{u, entries}
}

// documentWithoutFieldSets is a custom resource whose GetManagedFields returns entries without field
// sets. It implements metav1.Object.
type documentWithoutFieldSets struct {
	*unstructured.Unstructured
	entries []metav1.ManagedFieldsEntry
}

// GetManagedFields implements metav1.Object.
func (d documentWithoutFieldSets) GetManagedFields() []metav1.ManagedFieldsEntry { return d.entries }

// decodeEntryWithoutFields decodes a managedFields entry, except for its time and its field set,
// whose types it only checks. It returns false for an entry with unknown or mistyped members.
func decodeEntryWithoutFields(tree any) (e metav1.ManagedFieldsEntry, ok bool) {
	members, ok := tree.(map[string]any)
	for name, v := range members {
		text, isValid := v.(string)
		switch name {
		case "manager":
			e.Manager = text
		case "operation":
			e.Operation = metav1.ManagedFieldsOperationType(text)
		case "apiVersion":
			e.APIVersion = text
		case "fieldsType":
			e.FieldsType = text
		case "subresource":
			e.Subresource = text
		case "time":
			var t metav1.Time
			isValid = isValid && t.UnmarshalQueryParameter(text) == nil
		case "fieldsV1":
			_, isValid = v.(map[string]any)
		default:
			isValid = false
		}
		ok = ok && isValid
	}
	return e, ok
}
