package apply

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/registry"
)

// fakeClock is a clock that tests advance.
type fakeClock struct{ now time.Time }

func (c *fakeClock) Now() time.Time { return c.now }

func managerOf(t *testing.T, gvk schema.GroupVersionKind, sub string) (*Manager, *fakeClock) {
	t.Helper()
	fields, catalog := builtinFields(t)
	fakeClock := &fakeClock{time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)}
	fields.now = fakeClock.Now
	kind := catalog.Kind(gvk)
	return fields.Manager(kind, kind.Subresource(sub)), fakeClock
}

var (
	configMapGVK = corev1.SchemeGroupVersion.WithKind("ConfigMap")
	podGVK       = corev1.SchemeGroupVersion.WithKind("Pod")
)

func configMap(pairs ...string) *corev1.ConfigMap {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "n", UID: "u"}}
	for i := 0; i < len(pairs); i += 2 {
		if object.Data == nil {
			object.Data = map[string]string{}
		}
		object.Data[pairs[i]] = pairs[i+1]
	}
	return object
}

// formatOwners returns the managedFields of an object as text, one entry per line.
func formatOwners(o registry.Object) string {
	var lines []string
	for _, e := range o.GetManagedFields() {
		manager := fmt.Sprintf("%s %s", e.Manager, e.Operation)
		if e.Subresource != "" {
			manager += "/" + e.Subresource
		}
		lines = append(lines, fmt.Sprintf("%s %s %s", manager, e.APIVersion, e.FieldsV1.Raw))
	}
	return strings.Join(lines, "\n")
}

func updateAs(t *testing.T, m *Manager, live, obj registry.Object, manager string) {
	t.Helper()
	if err := m.Update(t.Context(), live, obj, manager); err != nil {
		t.Fatal(err)
	}
}

func checkOwners(t *testing.T, o registry.Object, want ...string) {
	t.Helper()
	if got := formatOwners(o); got != strings.Join(want, "\n") {
		t.Fatalf("got owners\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

// TestUpdateUsesValidManagedFieldsOfRequest covers managedFields in requests (specification: "Field ownership",
// rule 8).
func TestUpdateUsesValidManagedFieldsOfRequest(t *testing.T) {
	given := metav1.ManagedFieldsEntry{
		Manager:    "given",
		Operation:  "Update",
		APIVersion: "v1",
		FieldsType: "FieldsV1",
		FieldsV1:   &metav1.FieldsV1{Raw: []byte(`{"f:data":{"f:x":{}}}`)},
	}
	broken := given
	broken.FieldsV1 = &metav1.FieldsV1{Raw: []byte(`{"f:data":`)}
	const first = `first Update v1 {"f:data":{".":{},"f:a":{},"f:b":{}}}`
	for _, test := range []struct {
		name string
		sub  string
		list []metav1.ManagedFieldsEntry
		want []string
	}{
		{
			name: "none",
			want: []string{`first Update v1 {"f:data":{".":{},"f:a":{}}}`, `second Update v1 {"f:data":{"f:b":{}}}`},
		},
		{name: "empty list resets ownership", list: []metav1.ManagedFieldsEntry{}},
		{name: "one empty entry resets ownership", list: []metav1.ManagedFieldsEntry{{}}},
		{
			name: "valid entries are used",
			list: []metav1.ManagedFieldsEntry{given},
			want: []string{`given Update v1 {"f:data":{"f:x":{}}}`, `second Update v1 {"f:data":{"f:b":{}}}`},
		},
		{
			name: "malformed entries are ignored",
			list: []metav1.ManagedFieldsEntry{broken},
			want: []string{`first Update v1 {"f:data":{".":{},"f:a":{}}}`, `second Update v1 {"f:data":{"f:b":{}}}`},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			manager, _ := managerOf(t, configMapGVK, test.sub)
			live := configMap("a", "1", "b", "1")
			updateAs(t, manager, nil, live, "first")
			checkOwners(t, live, first)
			obj := configMap("a", "1", "b", "2")
			obj.ManagedFields = test.list
			updateAs(t, manager, live, obj, "second")
			checkOwners(t, obj, test.want...)
		})
	}
}

// TestSubresourcesIgnoreManagedFields checks that a write through a subresource ignores the
// managedFields of the request.
func TestSubresourcesIgnoreManagedFields(t *testing.T) {
	manager, _ := managerOf(t, podGVK, "")
	live := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec:       corev1.PodSpec{NodeName: "n"},
		Status:     corev1.PodStatus{Phase: "Pending"},
	}
	updateAs(t, manager, nil, live, "creator")
	const creator = `creator Update v1 {"f:spec":{"f:nodeName":{}}}`
	checkOwners(t, live, creator)
	status, _ := managerOf(t, podGVK, "status")
	obj := live.DeepCopy()
	obj.ManagedFields = []metav1.ManagedFieldsEntry{{}}
	obj.Spec.NodeName = "other"
	obj.Status.Phase = "Running"
	updateAs(t, status, live, obj, "kubelet")
	checkOwners(t, obj, creator, `kubelet Update/status v1 {"f:status":{"f:phase":{}}}`)
}

// TestObjectIsUntrackedUntilApplied checks that an object without managedFields stays untracked until the
// first apply, which attributes existing fields to before-first-apply.
func TestObjectIsUntrackedUntilApplied(t *testing.T) {
	manager, _ := managerOf(t, configMapGVK, "")
	live := configMap("a", "1")
	obj := configMap("a", "2")
	updateAs(t, manager, live, obj, "someone")
	checkOwners(t, obj, "")
	patch := map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"},
		"data": map[string]any{"b": "1"},
	}
	out, err := manager.Apply(t.Context(), obj, patch, "applier", false)
	if err != nil {
		t.Fatal(err)
	}
	checkOwners(t, out, `applier Apply v1 {"f:data":{"f:b":{}}}`, `before-first-apply Update v1 {"f:data":{".":{},"f:a":{}}}`)
}

// TestEntryTimeChangesOnlyWithFields checks that the time of an entry changes only with its fields.
func TestEntryTimeChangesOnlyWithFields(t *testing.T) {
	manager, clock := managerOf(t, configMapGVK, "")
	live := configMap("a", "1")
	updateAs(t, manager, nil, live, "x")
	first := clock.now
	clock.now = clock.now.Add(time.Hour)
	same := live.DeepCopy()
	updateAs(t, manager, live, same, "x")
	if got := same.ManagedFields[0].Time.Time; !got.Equal(first) {
		t.Errorf("no change: got time %v, want %v", got, first)
	}
	other := configMap("a", "2")
	updateAs(t, manager, live, other, "x")
	if got := other.ManagedFields[0].Time.Time; !got.Equal(clock.now) {
		t.Errorf("change: got time %v, want %v", got, clock.now)
	}
	if !EqualExceptTimes(live.ManagedFields, other.ManagedFields) {
		t.Error("other times: got different managed fields, want them equal but for times")
	}
	if manager.Equal(live, other) {
		t.Error("changed object: got equal, want different")
	}
	if !manager.Equal(live, same) {
		t.Error("unchanged object: got different, want equal")
	}
}

// TestOldUpdatesAreMerged checks that the oldest update entries beyond maxUpdateManagers are merged
// into one of ancientManager.
func TestOldUpdatesAreMerged(t *testing.T) {
	manager, clock := managerOf(t, configMapGVK, "")
	var live registry.Object
	for i := range 15 {
		obj := configMap()
		obj.Data = map[string]string{}
		for j := range i + 1 {
			obj.Data[fmt.Sprint("k", j)] = "v"
		}
		updateAs(t, manager, live, obj, fmt.Sprint("m", i))
		live = obj
		clock.now = clock.now.Add(time.Minute)
	}
	list := live.GetManagedFields()
	if len(list) != maxUpdateManagers {
		t.Fatalf("got %d entries, want %v", len(list), maxUpdateManagers)
	}
	i := slices.IndexFunc(list, func(e metav1.ManagedFieldsEntry) bool { return e.Manager == ancientManager })
	if i != 0 || string(list[i].FieldsV1.Raw) != `{"f:data":{".":{},"f:k0":{},"f:k1":{},"f:k2":{},"f:k3":{},"f:k4":{},"f:k5":{}}}` {
		t.Fatalf("got owners\n%s\nwant the oldest merged, with k0 to k5", formatOwners(live))
	}
}

// updatedBy returns an object with managed fields of managers. Each manager owns one key.
func updatedBy(managers ...string) *corev1.ConfigMap {
	obj := configMap()
	obj.Data = map[string]string{}
	for i, name := range managers {
		key := fmt.Sprint("k", i)
		obj.Data[key] = "v"
		at := metav1.NewTime(time.Unix(int64(i), 0))
		obj.ManagedFields = append(obj.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: name, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &at,
			FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:data":{"f:` + key + `":{}}}`)},
		})
	}
	return obj
}

// TestOldUpdatesAreMergedIntoEntryOfClient checks updates that a client sends with the name of merged ones.
func TestOldUpdatesAreMergedIntoEntryOfClient(t *testing.T) {
	m, _ := managerOf(t, configMapGVK, "")
	managers := []string{"first", ancientManager}
	for i := range 12 {
		managers = append(managers, fmt.Sprint("m", i))
	}
	obj := updatedBy(managers...)
	updateAs(t, m, obj.DeepCopy(), obj, "z")
	list := obj.ManagedFields
	if len(list) != maxUpdateManagers {
		t.Fatalf("got %d entries, want %v", len(list), maxUpdateManagers)
	}
	i := slices.IndexFunc(list, func(e metav1.ManagedFieldsEntry) bool { return e.Manager == ancientManager })
	if i < 0 || string(list[i].FieldsV1.Raw) != `{"f:data":{"f:k1":{},"f:k2":{},"f:k3":{},"f:k4":{},"f:k5":{}}}` {
		t.Errorf("got owners\n%s\nwant the merged entry without k0", formatOwners(obj))
	}
}

// TestManyUpdatesAreMergedInPairs checks that the work to merge many updates is not quadratic.
func TestManyUpdatesAreMergedInPairs(t *testing.T) {
	manager, _ := managerOf(t, configMapGVK, "")
	allocated := func(count int) uint64 {
		managers := make([]string, count)
		for i := range managers {
			managers[i] = fmt.Sprint("m", i)
		}
		obj := updatedBy(managers...)
		live := obj.DeepCopy()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		updateAs(t, manager, live, obj, "z")
		runtime.ReadMemStats(&after)
		if count := len(obj.ManagedFields); count != maxUpdateManagers {
			t.Fatalf("got %d entries, want %v", count, maxUpdateManagers)
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	if few, many := allocated(500), allocated(4000); many > 16*few {
		t.Errorf("got %d bytes allocated for 500 managers and %d for 4000, want at most 16 times as many", few, many)
	}
}

// TestSetOfOtherVersionIsConverted checks that a set of another version is converted when its fields change.
func TestSetOfOtherVersionIsConverted(t *testing.T) {
	f, catalog := builtinFields(t)
	managerV1 := f.Manager(catalog.Kind(autoscalingv1.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler")), nil)
	managerV2 := f.Manager(catalog.Kind(autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler")), nil)
	cpu := int32(50)
	autoscalerV1 := &autoscalingv1.HorizontalPodAutoscaler{
		Spec: autoscalingv1.HorizontalPodAutoscalerSpec{MaxReplicas: 3, TargetCPUUtilizationPercentage: &cpu},
	}
	autoscalerV1.Name = "a"
	autoscalerV1.UID = "u"
	updateAs(t, managerV1, nil, autoscalerV1, "one")
	const one = `{"f:spec":{"f:maxReplicas":{},"f:targetCPUUtilizationPercentage":{}}}`
	checkOwners(t, autoscalerV1, "one Update autoscaling/v1 "+one)

	live, err := managerV1.convert(t.Context(), autoscalerV1, managerV2.view)
	if err != nil {
		t.Fatal(err)
	}
	autoscaler := live.DeepCopyObject().(*autoscalingv2.HorizontalPodAutoscaler)
	more := int32(70)
	autoscaler.Spec.Metrics[0].Resource.Target.AverageUtilization = &more
	updateAs(t, managerV2, live, autoscaler, "two")
	checkOwners(
		t,
		autoscaler,
		`one Update autoscaling/v1 {"f:spec":{"f:maxReplicas":{}}}`,
		`two Update autoscaling/v2 {"f:spec":{"f:metrics":{}}}`,
	)

	patch := map[string]any{
		"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
		"metadata": map[string]any{"name": "a"}, "spec": map[string]any{"maxReplicas": int64(5)},
	}
	back, err := managerV2.convert(t.Context(), autoscaler, managerV1.view)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := managerV1.Apply(t.Context(), back, patch, "three", false); !apierrors.IsConflict(err) ||
		!strings.Contains(err.Error(), `conflict with "one" using autoscaling/v1: .spec.maxReplicas`) {
		t.Fatalf("got %v, want a conflict", err)
	}
	out, err := managerV1.Apply(t.Context(), back, patch, "three", true)
	if err != nil {
		t.Fatal(err)
	}
	checkOwners(t, out, `three Apply autoscaling/v1 {"f:spec":{"f:maxReplicas":{}}}`,
		`two Update autoscaling/v2 {"f:spec":{"f:metrics":{}}}`)
	// An entry with an unknown version is dropped.
	out.GetManagedFields()[1].APIVersion = "autoscaling/v3"
	next := out.DeepCopyObject().(registry.Object)
	updateAs(t, managerV1, out, next, "x")
	checkOwners(t, next, `three Apply autoscaling/v1 {"f:spec":{"f:maxReplicas":{}}}`)
}

// TestApplyTakesOverFieldsOfClientSideApply checks that apply takes over fields of client-side apply without a
// conflict. The client may return to client-side apply.
func TestApplyTakesOverFieldsOfClientSideApply(t *testing.T) {
	manager, _ := managerOf(t, configMapGVK, "")
	config := map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "namespace": "n"}, "data": map[string]any{"a": "1", "b": "1"},
	}
	data, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	live := configMap("a", "1", "b", "1")
	live.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: string(data)}
	updateAs(t, manager, nil, live, "kubectl-client-side-apply")
	config["data"] = map[string]any{"a": "2", "b": "1"}
	if _, err := manager.Apply(t.Context(), live, config, "another", false); !apierrors.IsConflict(err) {
		t.Errorf("another manager: got %v, want a conflict", err)
	}
	out, err := manager.Apply(t.Context(), live, config, "kubectl", false)
	if err != nil {
		t.Fatal(err)
	}
	var last unstructured.Unstructured
	if err := json.Unmarshal([]byte(out.GetAnnotations()[corev1.LastAppliedConfigAnnotation]), &last.Object); err != nil {
		t.Fatal(err)
	}
	if v, _, _ := unstructured.NestedString(last.Object, "data", "a"); v != "2" {
		t.Errorf("got last-applied annotation %v, want the value 2", last.Object)
	}
	// Fields that another manager changed since cause a conflict.
	changed := live.DeepCopy()
	changed.Data["b"] = "9"
	updateAs(t, manager, live, changed, "someone")
	_, err = manager.Apply(t.Context(), changed, config, "kubectl", false)
	if !apierrors.IsConflict(err) || strings.Contains(err.Error(), ".data.a") ||
		!strings.Contains(err.Error(), `"someone" using v1: .data.b`) {
		t.Errorf("got %v, want a conflict", err)
	}
}

// TestInvalidPatchesAreRejected checks that malformed apply patches are rejected with 400.
func TestInvalidPatchesAreRejected(t *testing.T) {
	manager, _ := managerOf(t, configMapGVK, "")
	object := func(change func(map[string]any)) map[string]any {
		o := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}}
		change(o)
		return o
	}
	for name, patch := range map[string]map[string]any{
		"another kind":     object(func(o map[string]any) { o["kind"] = "Secret" }),
		"no kind":          {},
		"another version":  object(func(o map[string]any) { o["apiVersion"] = "v2" }),
		"managedFields":    object(func(o map[string]any) { o["metadata"] = map[string]any{"managedFields": []any{}} }),
		"an unknown field": object(func(o map[string]any) { o["dta"] = "x" }),
		"a wrong type":     object(func(o map[string]any) { o["data"] = "x" }),
		"a wrong value":    object(func(o map[string]any) { o["data"] = map[string]any{"a": []any{}} }),
		"duplicates":       object(func(o map[string]any) { o["metadata"] = map[string]any{"finalizers": []any{"a/b", "a/b"}} }),
	} {
		if _, err := manager.Apply(t.Context(), configMap(), patch, "x", true); !apierrors.IsBadRequest(err) {
			t.Errorf("%s: got error %v, want BadRequest", name, err)
		}
	}
}

// TestSetCacheIsBounded checks that the cache of parsed field sets stays within maxCachedBytes.
func TestSetCacheIsBounded(t *testing.T) {
	manager, _ := managerOf(t, configMapGVK, "")
	for i := range 3000 {
		raw := fmt.Appendf(nil, `{"f:data":{"f:%0200d":{}}}`, i)
		for range 2 {
			fields, err := manager.parseFieldSet(raw)
			if err != nil || string(fields.raw) != string(raw) {
				t.Fatalf("parseFieldSet(%s): got %s, error %v, want the same text", raw, fields.raw, err)
			}
		}
	}
	cache := manager.fields.setCache
	if sum := 0; cache.bytes > maxCachedBytes || cache.byKey.Len() == 0 {
		t.Errorf("got %d sets of %d bytes, want some in at most %d", cache.byKey.Len(), cache.bytes, maxCachedBytes)
	} else {
		for _, key := range cache.byKey.Keys() {
			sum += len(key.raw)
		}
		if sum != cache.bytes {
			t.Errorf("got %d counted bytes, want %d", sum, cache.bytes)
		}
	}
}

// FuzzDecodeManagedFields checks that managedFields that an update accepts can be decoded again.
func FuzzDecodeManagedFields(f *testing.F) {
	f.Add([]byte(`[{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{},"f:a":{}},"k:{\"a\":1}":{},"v:\"x\"":{},"i:0":{}}}]`))
	f.Add([]byte(`[{}]`))
	fields, catalog := builtinFields(f)
	manager := fields.Manager(catalog.Kind(configMapGVK), nil)
	f.Fuzz(func(t *testing.T, raw []byte) {
		var list []metav1.ManagedFieldsEntry
		if json.Unmarshal(raw, &list) != nil {
			return
		}
		live := configMap("a", "1")
		obj := configMap("a", "2", "b", "3")
		live.ManagedFields = list
		if err := manager.Update(t.Context(), live, obj, "x"); err != nil {
			return
		}
		if _, err := manager.decode(obj.ManagedFields); err != nil {
			t.Fatalf("%s: encoded as %s, which cannot be decoded: %v", raw, formatOwners(obj), err)
		}
	})
}
