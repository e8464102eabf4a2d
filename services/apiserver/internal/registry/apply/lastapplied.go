package apply

import (
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v4/merge"
	"sigs.k8s.io/structured-merge-diff/v4/typed"

	"binnacle/services/apiserver/internal/registry"
)

// lastAppliedManager is the only manager that may use the annotation of client-side apply (KEP-555,
// upgrade and downgrade of apply).
const lastAppliedManager = "kubectl"

// withoutLastApplied removes from conflicts the fields that client-side apply set and that still
// have its values. The manager may take them over when it migrates.
func (m *Manager) withoutLastApplied(manager string, live registry.Object, conflicts merge.Conflicts) merge.Conflicts {
	if manager != lastAppliedManager {
		return conflicts
	}
	allowed := m.lastApplied(live)
	if allowed == nil {
		return conflicts
	}
	var rest merge.Conflicts
	for _, c := range conflicts {
		if !allowed.Has(c.Path) {
			rest = append(rest, c)
		}
	}
	return rest
}

// lastApplied returns the fields of the annotation that have the same value in the object. It
// returns nil if there are none or the annotation is invalid.
func (m *Manager) lastApplied(live registry.Object) *fieldpath.Set {
	text := live.GetAnnotations()[corev1.LastAppliedConfigAnnotation]
	if text == "" {
		return nil
	}
	last := &unstructured.Unstructured{Object: map[string]any{}}
	if json.Unmarshal([]byte(text), last) != nil || last.GetAPIVersion() != m.gvk.GroupVersion().String() {
		return nil
	}
	have, err := m.asTyped(live, typed.AllowDuplicates)
	if err != nil {
		return nil
	}
	applied, err := m.typed().FromUnstructured(last.Object)
	if err != nil {
		return nil
	}
	set, err := applied.ToFieldSet()
	if err != nil {
		return nil
	}
	d, err := applied.Compare(have)
	if err != nil {
		return nil
	}
	return set.Difference(d.Modified).Difference(d.Added).Difference(d.Removed)
}

// syncLastApplied updates the annotation of client-side apply, if present, so that its user can
// return to client-side apply.
func syncLastApplied(manager string, obj registry.Object, patch map[string]any) error {
	annotations := obj.GetAnnotations()
	if manager != lastAppliedManager || annotations[corev1.LastAppliedConfigAnnotation] == "" {
		return nil
	}
	u := (&unstructured.Unstructured{Object: patch}).DeepCopy()
	own := u.GetAnnotations()
	delete(own, corev1.LastAppliedConfigAnnotation)
	u.SetAnnotations(own)
	text, err := runtime.Encode(unstructured.UnstructuredJSONScheme, u)
	if err != nil {
		return fmt.Errorf("encode the last applied configuration: %w", err)
	}
	annotations = maps.Clone(annotations)
	annotations[corev1.LastAppliedConfigAnnotation] = string(text)
	if validation.ValidateAnnotationsSize(annotations) != nil {
		delete(annotations, corev1.LastAppliedConfigAnnotation)
	}
	obj.SetAnnotations(annotations)
	return nil
}
