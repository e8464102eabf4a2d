package kind

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/libs/semantic"
	"binnacle/services/apiserver/internal/json/tape"
	"binnacle/services/apiserver/internal/registry"
)

// contentOf returns an object's fields, or nil for an object that is not a document.
func contentOf(o registry.Object) map[string]any {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return u.Object
	}
	return nil
}

// parts returns the accessors of a document's parts. The status is the field of that name. The spec
// is everything else except the metadata.
func parts(hasStatus bool) registry.Parts {
	return registry.Parts{
		CopyStatus: func(to, from registry.Object) {
			t := contentOf(to)
			delete(t, "status")
			if from == nil {
				return
			}
			if s, ok := contentOf(from)["status"]; ok {
				t["status"] = runtime.DeepCopyJSONValue(s)
			}
		},
		CopySpec: func(to, from registry.Object) {
			t := contentOf(to)
			for name := range t {
				if !isOutsideSpec(name) {
					delete(t, name)
				}
			}
			for name, v := range contentOf(from) {
				if !isOutsideSpec(name) {
					t[name] = runtime.DeepCopyJSONValue(v)
				}
			}
		},
		SpecChanged: func(obj, old registry.Object) bool { return changed(contentOf(obj), contentOf(old), hasStatus) },
	}
}

// isOutsideSpec reports whether a field is not part of the spec.
func isOutsideSpec(name string) bool {
	return name == "metadata" || name == "status" || name == "apiVersion" || name == "kind"
}

// changed reports whether anything but metadata differs. It ignores the status if that is a
// subresource.
func changed(a, b map[string]any, hasStatus bool) bool {
	counts := func(name string) bool {
		return name != "metadata" && name != "apiVersion" && name != "kind" && (name != "status" || !hasStatus)
	}
	n := 0
	for name, v := range a {
		if !counts(name) {
			continue
		}
		n++
		w, ok := b[name]
		if !ok || !tape.EqualValues(v, w) && !semantic.Equal(v, w) {
			return true
		}
	}
	for name := range b {
		if counts(name) {
			n--
		}
	}
	return n != 0
}

// keepAllButStatus restores an object after a write through the status subresource. The write keeps
// only its status and managed fields.
func keepAllButStatus(obj, old registry.Object) {
	t := contentOf(obj)
	was := contentOf(old)
	status, ok := t["status"]
	managed := obj.GetManagedFields()
	for name := range t {
		delete(t, name)
	}
	for name, v := range was {
		if name != "status" {
			t[name] = runtime.DeepCopyJSONValue(v)
		}
	}
	if ok {
		t["status"] = status
	}
	obj.SetManagedFields(managed)
}
