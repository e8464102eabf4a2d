package meta

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"binnacle/services/apiserver/internal/registry"
)

// withoutFieldSets returns the metadata of an object for validation. For a custom resource, its
// managedFields have no field sets: no rule reads them, and decoding them takes long. It returns the
// object itself if it has a Go type, or if an entry of managedFields is malformed.
func withoutFieldSets(obj registry.Object) metav1.Object {
	object, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj
	}
	meta, _ := object.Object["metadata"].(map[string]any)
	entryTrees, ok := meta["managedFields"].([]any)
	if !ok {
		return obj
	}
	entries := make([]metav1.ManagedFieldsEntry, len(entryTrees))
	for i, tree := range entryTrees {
		if entries[i], ok = DecodeEntry(tree, noFields); !ok {
			return obj // the validation of the object reports the invalid entry
		}
	}
	return documentWithoutFieldSets{object, entries}
}

func noFields(map[string]any) (*metav1.FieldsV1, error) { return nil, nil }

// documentWithoutFieldSets is a document whose managedFields have no field sets. It implements
// metav1.Object.
type documentWithoutFieldSets struct {
	*unstructured.Unstructured
	entries []metav1.ManagedFieldsEntry
}

// GetManagedFields implements metav1.Object.
func (d documentWithoutFieldSets) GetManagedFields() []metav1.ManagedFieldsEntry { return d.entries }

// DecodeEntry decodes a managedFields entry. fieldsOf returns its field set. It returns false for an
// entry with unknown or mistyped fields.
func DecodeEntry(tree any, fieldsOf func(map[string]any) (*metav1.FieldsV1, error)) (entry metav1.ManagedFieldsEntry, ok bool) {
	members, ok := tree.(map[string]any)
	for name, value := range members {
		text, valid := value.(string)
		switch name {
		case "manager":
			entry.Manager = text
		case "operation":
			entry.Operation = metav1.ManagedFieldsOperationType(text)
		case "apiVersion":
			entry.APIVersion = text
		case "fieldsType":
			entry.FieldsType = text
		case "subresource":
			entry.Subresource = text
		case "time":
			t, err := time.Parse(time.RFC3339, text)
			entry.Time = &metav1.Time{Time: t.Local()}
			valid = valid && err == nil
		case "fieldsV1":
			var fields map[string]any
			if fields, valid = value.(map[string]any); valid {
				var err error
				entry.FieldsV1, err = fieldsOf(fields)
				valid = err == nil
			}
		default:
			valid = false
		}
		ok = ok && valid
	}
	return entry, ok
}
