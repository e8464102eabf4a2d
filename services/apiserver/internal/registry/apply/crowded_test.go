package apply

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v4/merge"

	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/registry"
)

// spec returns an object with count members.
func spec(count int) map[string]any {
	members := map[string]any{}
	for i := range count {
		members[fmt.Sprint("k", i)] = "v"
	}
	return members
}

// TestApplyLimitsMembers checks that an apply rejects a patch or a live object with more than
// MaxMembers members in one object, because the merge takes time quadratic in their number.
func TestApplyLimitsMembers(t *testing.T) {
	catalog, err := builtin.DefaultCatalog()
	if err != nil {
		t.Fatal(err)
	}
	fields := New(catalog, time.Now)
	var manager *Manager
	for _, kind := range catalog.Kinds() {
		if kind.GVK() == corev1.SchemeGroupVersion.WithKind("ConfigMap") {
			manager = fields.Manager(kind, nil)
		}
	}
	patch := func(n int) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}, "data": spec(n)}
	}
	if _, err := manager.Apply(t.Context(), &corev1.ConfigMap{}, patch(1000), "me", false); err != nil {
		t.Errorf("patch of 1000 members: got error %v, want none", err)
	}
	_, err = manager.Apply(t.Context(), &corev1.ConfigMap{}, patch(MaxMembers+1), "me", false)
	if !apierrors.IsRequestEntityTooLargeError(err) {
		t.Errorf("large patch: got error %.200v, want RequestEntityTooLarge", err)
	}
	live := &corev1.ConfigMap{Data: map[string]string{}}
	for kind := range spec(MaxMembers + 1) {
		live.Data[kind] = "v"
	}
	if _, err := manager.Apply(t.Context(), live, patch(1), "me", false); !apierrors.IsRequestEntityTooLargeError(err) {
		t.Errorf("large live object: got error %.200v, want RequestEntityTooLarge", err)
	}
	// Objects with Go types are compared in order, and keep their owners.
	if err := manager.Update(t.Context(), nil, live, "me"); err != nil || len(live.ManagedFields) != 1 {
		t.Errorf("create: got %v, %d entries, want 1", err, len(live.ManagedFields))
	}
}

// TestApplyLimitsMembersWithoutGoType checks that MaxMembers also holds for objects without a Go
// type, but not for atomic lists.
func TestApplyLimitsMembersWithoutGoType(t *testing.T) {
	thingManager := newCustomManager(t, "")
	object := func(spec map[string]any) registry.Object { return &unstructured.Unstructured{Object: newThing(spec)} }
	if err := thingManager.Update(t.Context(), nil, object(spec(MaxMembers+1)), "me"); !apierrors.IsRequestEntityTooLargeError(err) {
		t.Errorf("got error %.200v, want RequestEntityTooLarge for too many members only", err)
	}
	long := make([]any, MaxMembers+1) // lists without rules are atomic
	for i := range long {
		long[i] = map[string]any{"x": int64(i)}
	}
	obj := object(map[string]any{"points": long})
	if err := thingManager.Update(t.Context(), nil, obj, "me"); err != nil || len(obj.GetManagedFields()) != 1 {
		t.Errorf("long atomic list: got error %v, want one entry of managed fields", err)
	}
}

// TestApplyLimitsPathBytes checks that an apply limits the total size of paths. The key of a list
// element is part of the path of each field below it.
func TestApplyLimitsPathBytes(t *testing.T) {
	catalog, err := builtin.DefaultCatalog()
	if err != nil {
		t.Fatal(err)
	}
	fields := New(catalog, time.Now)
	var manager *Manager
	for _, kind := range catalog.Kinds() {
		if kind.GVK() == corev1.SchemeGroupVersion.WithKind("Pod") {
			manager = fields.Manager(kind, nil)
		}
	}
	patch := func(keyLength, elements int, extraFields map[string]any) map[string]any {
		var env []any
		for i := range elements {
			element := map[string]any{"name": fmt.Sprint("e", i)}
			maps.Copy(element, extraFields)
			env = append(env, element)
		}
		container := map[string]any{"name": strings.Repeat("a", keyLength), "env": env}
		return map[string]any{
			"apiVersion": "v1",
			"kind":       "Pod",
			"metadata":   map[string]any{"name": "a"},
			"spec":       map[string]any{"containers": []any{container}},
		}
	}
	for name, test := range map[string]struct {
		patch       map[string]any
		wantSuccess bool
	}{
		"50 elements with a key of 60,000 bytes":   {patch: patch(60_000, 50, nil), wantSuccess: true},
		"5000 elements with a key of 60 bytes":     {patch: patch(60, 5_000, nil), wantSuccess: true},
		"1000 elements with a key of 60,000 bytes": {patch: patch(60_000, 1000, nil), wantSuccess: false},
		"500 elements with a key of 60,000 bytes and an unknown field": {
			patch:       patch(60_000, 500, map[string]any{"zz": "x"}),
			wantSuccess: false,
		},
		"40 elements with a key of 1,000,000 bytes": {patch: patch(1_000_000, 40, nil), wantSuccess: false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := manager.Apply(t.Context(), &corev1.Pod{}, test.patch, "me", false)
			if (err == nil) != test.wantSuccess || err != nil && !apierrors.IsRequestEntityTooLargeError(err) {
				t.Errorf("got error %.200v, want success: %t, otherwise RequestEntityTooLarge", err, test.wantSuccess)
			}
		})
	}
}

// TestConflictErrorIsBounded checks that the conflicts in the error are limited in bytes.
func TestConflictErrorIsBounded(t *testing.T) {
	key := strings.Repeat("k", 60_000)
	var conflicts merge.Conflicts
	for i := range 1000 {
		conflicts = append(conflicts, merge.Conflict{Manager: "m", Path: fieldpath.MakePathOrDie("a", key, fmt.Sprint(i))})
	}
	var statusErr apierrors.APIStatus
	if err := conflictError(conflicts); !errors.As(err, &statusErr) {
		t.Fatal(err)
	}
	status := statusErr.Status()
	if causes := len(status.Details.Causes); causes < 10 || causes > 20 || len(status.Message) > 2*maxConflictBytes ||
		!strings.HasPrefix(status.Message, "Apply failed with 1000 conflicts: ") {
		t.Errorf("got %d causes, %d bytes: %.100s, want a message that begins with %q",
			causes, len(status.Message), status.Message, "Apply failed with 1000 conflicts: ")
	}
}
