package meta

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"binnacle/services/apiserver/internal/registry"
)

// withoutFieldSets returns the metadata of an object. In that of a custom resource, managedFields
// have no field sets, because no rule reads them and they are large.
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
		if entries[i], ok = lightEntry(tree); !ok {
			return obj // the validation of the object reports the invalid entry
		}
	}
	return lightDocument{u, entries}
}

// lightDocument is a document with separately decoded managedFields. It implements metav1.Object.
type lightDocument struct {
	*unstructured.Unstructured
	entries []metav1.ManagedFieldsEntry
}

// GetManagedFields implements metav1.Object.
func (d lightDocument) GetManagedFields() []metav1.ManagedFieldsEntry { return d.entries }

// lightEntry decodes an entry without its field set. It returns false for an invalid entry.
func lightEntry(tree any) (e metav1.ManagedFieldsEntry, ok bool) {
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
