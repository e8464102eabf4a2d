package kind

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/libs/semantic"
	"binnacle/services/apiserver/internal/json/tape"
	"binnacle/services/apiserver/internal/registry"
)

// fieldsOf returns an object's fields, or nil for an object that is not a document.
func fieldsOf(o registry.Object) map[string]any {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return u.Object
	}
	return nil
}

// specStatusAccessors returns functions that copy and compare the status and spec of documents. The
// spec is everything but the status, metadata, apiVersion and kind.
func specStatusAccessors(hasStatus bool) registry.SpecStatusAccessors {
	return registry.SpecStatusAccessors{
		CopyStatus: func(to, from registry.Object) {
			target := fieldsOf(to)
			delete(target, "status")
			if from == nil {
				return
			}
			if s, ok := fieldsOf(from)["status"]; ok {
				target["status"] = runtime.DeepCopyJSONValue(s)
			}
		},
		CopySpec: func(to, from registry.Object) {
			target := fieldsOf(to)
			for name := range target {
				if !isOutsideSpec(name) {
					delete(target, name)
				}
			}
			for name, v := range fieldsOf(from) {
				if !isOutsideSpec(name) {
					target[name] = runtime.DeepCopyJSONValue(v)
				}
			}
		},
		SpecChanged: func(obj, old registry.Object) bool { return specChanged(fieldsOf(obj), fieldsOf(old), hasStatus) },
	}
}

// isOutsideSpec reports whether a field is not part of the spec.
func isOutsideSpec(name string) bool {
	return name == "metadata" || name == "status" || name == "apiVersion" || name == "kind"
}

// specChanged reports whether anything but metadata differs. It ignores the status if that is a
// subresource.
func specChanged(a, b map[string]any, hasStatus bool) bool {
	isCompared := func(name string) bool {
		return name != "metadata" && name != "apiVersion" && name != "kind" && (name != "status" || !hasStatus)
	}
	for name, value := range a {
		if !isCompared(name) {
			continue
		}
		other, ok := b[name]
		if !ok || !tape.EqualValues(value, other) && !semantic.Equal(value, other) {
			return true
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok && isCompared(name) {
			return true
		}
	}
	return false
}

// keepAllButStatus prepares a write through the status subresource: it restores everything but the
// status and managed fields of obj from old.
func keepAllButStatus(obj, old registry.Object) {
	content := fieldsOf(obj)
	oldContent := fieldsOf(old)
	status, ok := content["status"]
	managed := obj.GetManagedFields()
	for name := range content {
		delete(content, name)
	}
	for name, v := range oldContent {
		if name != "status" {
			content[name] = runtime.DeepCopyJSONValue(v)
		}
	}
	if ok {
		content["status"] = status
	}
	obj.SetManagedFields(managed)
}
