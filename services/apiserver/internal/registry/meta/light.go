package meta

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"binnacle/services/apiserver/internal/registry"
)

// withoutFieldSets returns the metadata of an object. The managedFields of a custom resource lack
// their field sets, because no rule reads them and they are large.
func withoutFieldSets(obj registry.Object) metav1.Object {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj
	}
	meta, _ := u.Object["metadata"].(map[string]any)
	trees, ok := meta["managedFields"].([]any)
	if !ok {
		return obj
	}
	entries := make([]metav1.ManagedFieldsEntry, len(trees))
	for i, tree := range trees {
		if entries[i], ok = decodeEntryWithoutFields(tree); !ok {
			return obj // the validation of the object reports the invalid entry
		}
	}
	return documentWithoutFieldSets{u, entries}
}

// documentWithoutFieldSets is a document whose managedFields have no field sets. It implements
// metav1.Object.
type documentWithoutFieldSets struct {
	*unstructured.Unstructured
	entries []metav1.ManagedFieldsEntry
}

// GetManagedFields implements metav1.Object.
func (d documentWithoutFieldSets) GetManagedFields() []metav1.ManagedFieldsEntry { return d.entries }

// decodeEntryWithoutFields decodes a managedFields entry without its field set. It returns false
// for an invalid entry.
func decodeEntryWithoutFields(tree any) (e metav1.ManagedFieldsEntry, ok bool) {
	m, ok := tree.(map[string]any)
	for name, v := range m {
		text, is := v.(string)
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
		case "time": // only checked for validity
			var t metav1.Time
			is = is && t.UnmarshalQueryParameter(text) == nil
		case "fieldsV1":
			_, is = v.(map[string]any)
		default:
			is = false
		}
		ok = ok && is
	}
	return e, ok
}
