package traffic

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/e2e/robustness/history"
)

// The resources of the traffic.
const (
	configMaps = "configmaps"
	pods       = "pods"
)

// resources returns the resources of the traffic.
func resources() []string { return []string{configMaps, pods} }

// colors returns the values of the label that selects objects.
func colors() []string { return []string{"red", "green", "blue"} }

// objectKey identifies an object in a history.
type objectKey struct{ resource, namespace, name string }

// String returns the key in a history.
func (k objectKey) String() string { return k.resource + "/" + k.namespace + "/" + k.name }

// parseStorageKey parses the etcd key of an object of one of the resources.
func parseStorageKey(text string) (objectKey, bool) {
	parts := strings.Split(text, "/")
	if len(parts) != 5 || parts[0] != "" || parts[1] != "registry" || parts[2] != configMaps && parts[2] != pods {
		return objectKey{}, false
	}
	return objectKey{parts[2], parts[3], parts[4]}, true
}

// newObject returns a new object.
func newObject(key objectKey, mark, color string) runtime.Object {
	objectMeta := metav1.ObjectMeta{
		Namespace: key.namespace, Name: key.name,
		Labels: map[string]string{history.Color: color}, Annotations: map[string]string{history.MarkAnnotation: mark},
	}
	if key.resource == pods {
		return &corev1.Pod{
			ObjectMeta: objectMeta,
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/image"}}},
		}
	}
	return &corev1.ConfigMap{ObjectMeta: objectMeta, Data: map[string]string{"name": key.name}}
}

// emptyObject returns an object to decode into.
func emptyObject(resource string) runtime.Object {
	if resource == pods {
		return &corev1.Pod{}
	}
	return &corev1.ConfigMap{}
}

// emptyList returns a list to decode into.
func emptyList(resource string) runtime.Object {
	if resource == pods {
		return &corev1.PodList{}
	}
	return &corev1.ConfigMapList{}
}

// versionOf returns the version of an object.
func versionOf(resource string, obj runtime.Object) (history.Version, error) {
	object, err := meta.Accessor(obj)
	if err != nil {
		return history.Version{}, err
	}
	revision, err := parseRevision(object.GetResourceVersion())
	if err != nil {
		return history.Version{}, fmt.Errorf("%s/%s: %w", object.GetNamespace(), object.GetName(), err)
	}
	return history.Version{
		Key:      objectKey{resource, object.GetNamespace(), object.GetName()}.String(),
		Revision: revision,
		Value:    object.GetAnnotations()[history.MarkAnnotation],
		Color:    object.GetLabels()[history.Color],
	}, nil
}

// versionsOf returns the revision and the items of a list.
func versionsOf(resource string, list runtime.Object) (int64, []history.Version, error) {
	m, err := meta.ListAccessor(list)
	if err != nil {
		return 0, nil, err
	}
	revision, err := parseRevision(m.GetResourceVersion())
	if err != nil {
		return 0, nil, fmt.Errorf("list of %s: %w", resource, err)
	}
	var items []history.Version
	err = meta.EachListItem(list, func(obj runtime.Object) error {
		v, err := versionOf(resource, obj)
		items = append(items, v)
		return err
	})
	return revision, items, err
}

// storedVersion returns the version of a stored object. Its resource version is not stored, so the
// revision is passed.
func storedVersion(key objectKey, obj runtime.Object, revision int64) (history.Version, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return history.Version{}, fmt.Errorf("%s: %w", key, err)
	}
	m.SetResourceVersion(fmt.Sprint(revision))
	return versionOf(key.resource, obj)
}
