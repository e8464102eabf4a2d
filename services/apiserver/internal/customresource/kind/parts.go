package kind

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/libs/semantic"
	"binnacle/services/apiserver/internal/customresource/tape"
	"binnacle/services/apiserver/internal/registry"
)

// tree is an object's fields; nil for what is no document.
func tree(o registry.Object) map[string]any {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return u.Object
	}
	return nil
}

// parts takes documents apart: the status is the field of that name, the
// specification all else beside the metadata.
func parts(hasStatus bool) registry.Parts {
	return registry.Parts{
		CopyStatus: func(to, from registry.Object) {
			t := tree(to)
			delete(t, "status")
			if from == nil {
				return
			}
			if s, ok := tree(from)["status"]; ok {
				t["status"] = runtime.DeepCopyJSONValue(s)
			}
		},
		CopySpec: func(to, from registry.Object) {
			t := tree(to)
			for name := range t {
				if !keptBy(name) {
					delete(t, name)
				}
			}
			for name, v := range tree(from) {
				if !keptBy(name) {
					t[name] = runtime.DeepCopyJSONValue(v)
				}
			}
		},
		SpecChanged: func(obj, old registry.Object) bool { return changed(tree(obj), tree(old), hasStatus) },
	}
}

// keptBy tells which fields are not of the specification.
func keptBy(name string) bool {
	return name == "metadata" || name == "status" || name == "apiVersion" || name == "kind"
}

// changed tells whether anything but metadata, and status where it is a
// sub-resource, differs.
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

// keepAllButStatus is what a write through the status leaves of an object: its
// status and who owns its fields.
func keepAllButStatus(obj, old registry.Object) {
	t, was := tree(obj), tree(old)
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
