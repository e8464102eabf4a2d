package apply

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/services/apiserver/internal/registry"
)

// largePod returns a pod of about 6 KB as JSON.
func largePod(b *testing.B, kind *registry.Kind) *corev1.Pod {
	b.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "p",
			Namespace:   "n",
			UID:         "u",
			Labels:      map[string]string{},
			Annotations: map[string]string{},
		},
	}
	for i := range 8 {
		pod.Labels[fmt.Sprint("label-", i)] = "value"
		pod.Annotations[fmt.Sprint("example.org/annotation-", i)] = "a value that is somewhat longer"
	}
	for i := range 3 {
		container := corev1.Container{Name: fmt.Sprint("c", i), Image: "registry.example.org/some/image:v1", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")},
		}}
		for j := range 8 {
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprint("VARIABLE_", j), Value: "some value"})
		}
		container.Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: "TCP"}}
		pod.Spec.Containers = append(pod.Spec.Containers, container)
	}
	kind.Default(pod)
	return pod
}

func podManager(b *testing.B) (*Manager, *corev1.Pod) {
	b.Helper()
	fields, catalog := builtinFields(b)
	fields.now = func() time.Time { return time.Unix(1e9, 0) }
	kind := catalog.Kind(podGVK)
	manager := fields.Manager(kind, nil)
	pod := largePod(b, kind)
	if err := manager.Update(b.Context(), nil, pod, "creator"); err != nil {
		b.Fatal(err)
	}
	return manager, pod
}

// BenchmarkCreate measures the ownership of a new object.
func BenchmarkCreate(b *testing.B) {
	manager, pod := podManager(b)
	b.ReportAllocs()
	for b.Loop() {
		pod.ManagedFields = nil
		if err := manager.Update(b.Context(), nil, pod, "creator"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkUpdate measures the ownership of a changed object.
func BenchmarkUpdate(b *testing.B) {
	manager, live := podManager(b)
	obj := live.DeepCopy()
	obj.Labels["label-1"] = "other"
	managed := obj.ManagedFields
	b.ReportAllocs()
	for b.Loop() {
		obj.ManagedFields = managed
		if err := manager.Update(b.Context(), live, obj, "updater"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkApply measures an apply.
func BenchmarkApply(b *testing.B) {
	manager, live := podManager(b)
	patch := map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{
			"name": "p", "namespace": "n", "labels": map[string]any{"label-1": "value", "mine": "1"},
		},
		"spec": map[string]any{"containers": []any{map[string]any{"name": "c1", "image": "registry.example.org/some/image:v1"}}},
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := manager.Apply(b.Context(), live, runtime.DeepCopyJSON(patch), "applier", false); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCreateDocument creates a custom resource.
func BenchmarkCreateDocument(b *testing.B) {
	manager := newCustomManager(b, documentRules)
	parts := []any{}
	for i := range 30 {
		parts = append(parts, map[string]any{
			"text": fmt.Sprint("part-", i), "number": int64(i), "free": map[string]any{"a": "x", "b": "y"},
		})
	}
	obj := &unstructured.Unstructured{
		Object: newThing(map[string]any{"parts": parts, "nested": map[string]any{"text": "x", "truth": true}}),
	}
	b.ReportAllocs()
	for b.Loop() {
		obj.SetManagedFields(nil)
		if err := manager.Update(b.Context(), nil, obj, "creator"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPatchDocument changes an annotation of a custom resource.
func BenchmarkPatchDocument(b *testing.B) {
	manager := newCustomManager(b, documentRules)
	parts := []any{}
	for i := range 30 {
		parts = append(parts, map[string]any{
			"text": fmt.Sprint("part-", i), "number": int64(i), "free": map[string]any{"a": "x", "b": "y"},
		})
	}
	obj := &unstructured.Unstructured{
		Object: newThing(map[string]any{"parts": parts, "nested": map[string]any{"text": "x", "truth": true}}),
	}
	if err := manager.Update(b.Context(), nil, obj, "creator"); err != nil {
		b.Fatal(err)
	}
	now := obj.DeepCopy()
	now.SetAnnotations(map[string]string{"a": "b"})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := manager.differences(obj, now); err != nil {
			b.Fatal(err)
		}
	}
}
