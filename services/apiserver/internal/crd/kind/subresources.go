package kind

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry"
)

// addSubresources declares scale and status if the version has them.
func (s *versionSchema) addSubresources(kind *registry.Kind) {
	verbs := []string{"get", "patch", "update"}
	if s.scale != nil {
		kind.Subresources = append(kind.Subresources,
			registry.Subresource{Name: "scale", GVK: scaleKind, Verbs: verbs, Scale: s.newScale()})
	}
	if s.status {
		kind.Subresources = append(kind.Subresources,
			registry.Subresource{Name: "status", GVK: schema.GroupVersionKind{Kind: kind.Kind}, Verbs: verbs, Prepare: keepAllButStatus})
	}
}

// splitPath returns the names in a path: ".spec.replicas" -> spec, replicas.
func splitPath(p string) []string { return strings.Split(strings.TrimPrefix(p, "."), ".") }

// nestedInt returns the integer at a path of an object, or false if there is none.
func nestedInt(o registry.Object, p string) (int64, bool) {
	n, ok, err := unstructured.NestedInt64(fieldsOf(o), splitPath(p)...)
	return n, ok && err == nil
}

// newScale returns the scale subresource of a version.
func (s *versionSchema) newScale() *registry.Scale {
	spec, status := s.scale.SpecReplicasPath, s.scale.StatusReplicasPath
	return &registry.Scale{
		ValidatedWithObject: true,
		Columns: registry.ScaleColumns{
			Desired:   "Number of desired replicas",
			Available: "Number of actual replicas",
			AgeType:   "date",
		},
		Path:                     splitPath(spec),
		AllowUnconditionalUpdate: true,
		Versions:                 s.replicasPaths(),
		Validate: func(object registry.Object) error {
			if _, ok := nestedInt(object, spec); !ok {
				return fmt.Errorf("the spec replicas field %q does not exist", spec)
			}
			return nil
		},
		Replicas: func(object registry.Object) int32 {
			n, _ := nestedInt(object, spec)
			return int32(n)
		},
		SetReplicas: func(object registry.Object, n int32) {
			// On failure, the schema check reports the value on the path that is not an object.
			_ = unstructured.SetNestedField(fieldsOf(object), int64(n), splitPath(spec)...)
		},
		Status: func(object registry.Object) (int32, string) {
			n, _ := nestedInt(object, status)
			selector := ""
			if p := s.scale.LabelSelectorPath; p != nil {
				selector, _, _ = unstructured.NestedString(fieldsOf(object), splitPath(*p)...)
			}
			return int32(n), selector
		},
	}
}

// replicasPaths returns the path of the replicas in each version of the definition, by apiVersion;
// nil for a version without scale.
func (f *family) replicasPaths() map[string][]string {
	paths := make(map[string][]string, len(f.versions))
	for name, v := range f.versions {
		var p []string
		if v.scale != nil {
			p = splitPath(v.scale.SpecReplicasPath)
		}
		paths[f.group+"/"+name] = p
	}
	return paths
}

// scaleErrors returns the errors in the numbers of the scale. A write of the status does not check
// the spec.
func (s *versionSchema) scaleErrors(object registry.Object, statusOnly bool) (errs []*field.Error) {
	if s.scale == nil {
		return nil
	}
	paths := []string{s.scale.SpecReplicasPath, s.scale.StatusReplicasPath}
	if statusOnly {
		paths = paths[1:]
	}
	for _, p := range paths {
		replicas, _, err := unstructured.NestedInt64(fieldsOf(object), splitPath(p)...)
		const maxReplicas = 1<<31 - 1
		fieldPath := field.NewPath(p)
		switch {
		case err != nil:
			errs = append(errs, field.Invalid(fieldPath, replicas, err.Error()))
		case replicas < 0:
			errs = append(errs, field.Invalid(fieldPath, replicas, "should be a non-negative integer"))
		case replicas > maxReplicas:
			errs = append(errs, field.Invalid(fieldPath, replicas, "should be less than or equal to 2147483647"))
		}
	}
	if p := s.scale.LabelSelectorPath; p != nil && *p != "" {
		if text, _, err := unstructured.NestedString(fieldsOf(object), splitPath(*p)...); err != nil {
			errs = append(errs, field.Invalid(field.NewPath(*p), text, err.Error()))
		}
	}
	return errs
}
