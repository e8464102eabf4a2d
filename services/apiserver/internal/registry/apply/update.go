package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v4/merge"
	"sigs.k8s.io/structured-merge-diff/v4/typed"

	"binnacle/services/apiserver/internal/registry"
)

// Limit of update entries and names of managers, as in Kubernetes.
const (
	// maxUpdateManagers is the maximum number of update entries of an object.
	maxUpdateManagers = 10
	// ancientManager owns the fields of the oldest update entries beyond maxUpdateManagers.
	ancientManager = "ancient-changes"
	// firstManager owns the fields that an object had when it was applied first, if no entry owned
	// any.
	firstManager = "before-first-apply"
	// unknownManager stands for a manager without a name.
	unknownManager = "unknown"
)

// unownedFields holds the fields without owners: fields that the server sets, and fields that
// identify an object.
var unownedFields = fieldpath.NewSet(
	fieldpath.MakePathOrDie("apiVersion"), fieldpath.MakePathOrDie("kind"), fieldpath.MakePathOrDie("metadata"),
	fieldpath.MakePathOrDie("metadata", "name"), fieldpath.MakePathOrDie("metadata", "namespace"),
	fieldpath.MakePathOrDie("metadata", "creationTimestamp"), fieldpath.MakePathOrDie("metadata", "selfLink"),
	fieldpath.MakePathOrDie("metadata", "uid"), fieldpath.MakePathOrDie("metadata", "clusterName"),
	fieldpath.MakePathOrDie("metadata", "generation"), fieldpath.MakePathOrDie("metadata", "managedFields"),
	fieldpath.MakePathOrDie("metadata", "resourceVersion"),
)

// Update sets the managedFields of obj after a field manager created it (live is nil), updated it
// or patched it. ctx bounds conversions by a webhook.
//
// Requests to the main resource may set managedFields; requests to a subresource may not. Without
// valid managedFields in the request, the entries of live apply. On an update, an empty list or a
// list of one empty entry removes all entries. An update that starts without entries adds none:
// owners are recorded again after the next apply. A create ignores such a list.
func (m *Manager) Update(ctx context.Context, live, obj registry.Object, manager string) error {
	// 1. Determine the entries before this change.
	before := ManagedFieldsOf(obj)
	requested := before.Entries()
	entries := managed{}
	forget := m.subresource == "" && requestsReset(requested)
	if !forget {
		if m.subresource == "" {
			entries = m.decodeOrNone(requested)
		}
		if len(entries) == 0 && live != nil {
			entries = m.decodeOrNone(ManagedFieldsOf(live).Entries())
		}
	}
	if len(entries) == 0 && live != nil {
		obj.SetManagedFields(nil) // untracked until the next apply
		return nil
	}

	// 2. Give the changed fields to the manager.
	obj.SetManagedFields(nil)
	if err := m.recordChanges(ctx, live, obj, entries, m.newOwner(manager, metav1.ManagedFieldsOperationUpdate)); err != nil {
		return err
	}
	if err := entries.limitUpdateEntries(); err != nil {
		return err
	}

	// 3. Write the entries to the object.
	list, err := entries.encode()
	if err != nil {
		return err
	}
	setManagedFields(obj, list, before, requested)
	return nil
}

func (m *Manager) newOwner(manager string, op metav1.ManagedFieldsOperationType) owner {
	if manager == "" {
		manager = unknownManager
	}
	result := owner{Manager: manager, Operation: op, Subresource: m.subresource}
	if !result.isApply() {
		result.APIVersion = m.gvk.GroupVersion().String()
	}
	return result
}

// recordChanges moves the ownership of the fields that differ between live and obj to an owner. live
// is nil if all fields of obj are new. entries is modified.
func (m *Manager) recordChanges(ctx context.Context, live, obj registry.Object, entries managed, to owner) error {
	// 1. Determine the fields that the owner takes: those that were added or changed.
	version := m.gvk.GroupVersion().String()
	changes := map[string]*changes{}
	diff, err := m.differences(live, obj)
	if err != nil {
		return err
	}
	changes[version] = diff.filteredBy(m.filter)
	used := changes[version].set.Difference(unownedFields)

	// 2. Remove the changed fields from all entries. Each entry names fields as they are in its own
	// version, so the objects are compared in that version, once for each version.
	for entryOwner, managedEntry := range entries {
		difference, ok := changes[managedEntry.version]
		if !ok {
			if difference, err = m.differencesIn(ctx, managedEntry.version, live, obj); err != nil {
				return err
			}
			changes[managedEntry.version] = difference
		}
		if difference == nil { // a version that is no longer served
			delete(entries, entryOwner)
			continue
		}
		changed := difference.set
		if entryOwner == to { // keep its encoding if its set already includes all taken fields
			changed = changed.Difference(used)
		}
		if remaining := managedEntry.minus(changed).minus(difference.removed); remaining.Empty() {
			delete(entries, entryOwner)
		} else if remaining.Set != managedEntry.Set { // the same pointer means that no field was removed
			entries[entryOwner] = &entry{fieldSet: remaining, version: managedEntry.version, time: managedEntry.time}
		}
	}

	// 3. Add the taken fields to those that the owner has already.
	if used.Empty() {
		return nil
	}
	before := fieldSet{}
	if managedEntry := entries[to]; managedEntry != nil {
		before = managedEntry.fieldSet
	}
	entries[to] = &entry{fieldSet: before.plus(used), version: version, time: truncateTime(m.fields.now())}
	return nil
}

// differencesIn compares two objects in another version. It returns nil if that version is not
// served.
func (m *Manager) differencesIn(ctx context.Context, version string, live, obj registry.Object) (*changes, error) {
	otherView := m.inVersion(version)
	if otherView == nil {
		return nil, nil
	}
	var err error
	if live != nil {
		if live, err = m.convert(ctx, live, otherView); err != nil {
			return nil, fmt.Errorf("convert the live object to %s: %w", version, err)
		}
	}
	if obj, err = m.convert(ctx, obj, otherView); err != nil {
		return nil, fmt.Errorf("convert the object to %s: %w", version, err)
	}
	diff, err := otherView.differences(live, obj)
	if err != nil {
		return nil, err
	}
	return diff.filteredBy(m.filter), nil
}

// limitUpdateEntries merges the oldest update entries until at most maxUpdateManagers remain. It
// merges only entries of the same version, so more may remain. The result of a merge is the entry of
// ancientManager for that version. The error is always nil.
func (m managed) limitUpdateEntries() error {
	// 1. Sort the owners of update entries by age.
	var updaters []owner
	for entryOwner := range m {
		if !entryOwner.isApply() {
			updaters = append(updaters, entryOwner)
		}
	}
	excess := len(updaters) - maxUpdateManagers
	if excess <= 0 {
		return nil
	}
	slices.SortFunc(updaters, func(a, b owner) int {
		if x, y := unixSeconds(m[a].time), unixSeconds(m[b].time); x != y {
			return int(x - y)
		}
		return strings.Compare(a.id(), b.id())
	})

	// 2. Remove entries, the oldest ones first. The oldest entry of a version stays until a second
	// one of that version must go. It then becomes the entry of ancientManager, unless there is one.
	first := map[string]owner{}            // the oldest owner of each version
	merged := map[owner][]*fieldpath.Set{} // sets of removed entries, by the entry that gets them
	for _, entryOwner := range updaters {
		if excess <= 0 {
			break
		}
		managedEntry := m[entryOwner]
		oldest, seen := first[managedEntry.version]
		if !seen {
			first[managedEntry.version] = entryOwner
			continue
		}
		bucket := owner{Manager: ancientManager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: managedEntry.version}
		if entryOwner == bucket {
			continue
		}
		if m[bucket] == nil {
			m[bucket] = m[oldest]
			delete(m, oldest)
		}
		delete(m, entryOwner)
		// The bucket gets the time of the latest merged entry.
		m[bucket] = &entry{fieldSet: m[bucket].fieldSet, version: managedEntry.version, time: managedEntry.time}
		merged[bucket] = append(merged[bucket], managedEntry.Set)
		excess--
	}

	// 3. Add the fields of the removed entries.
	for bucket, sets := range merged {
		m[bucket].fieldSet = m[bucket].plus(union(sets))
	}
	return nil
}

// union returns the union of sets, which must not be empty. It modifies the slice. Set.Union copies its
// receiver, so union merges in pairs: adding thousands of sets to one, one after the other, would take
// quadratic time.
func union(sets []*fieldpath.Set) *fieldpath.Set {
	for len(sets) > 1 {
		merged := 0
		for i := 0; i < len(sets); i += 2 {
			sets[merged] = sets[i]
			if i+1 < len(sets) {
				sets[merged] = sets[i].Union(sets[i+1])
			}
			merged++
		}
		sets = sets[:merged]
	}
	return sets[0]
}

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
	var remaining merge.Conflicts
	for _, conflict := range conflicts {
		if !allowed.Has(conflict.Path) {
			remaining = append(remaining, conflict)
		}
	}
	return remaining
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
	current, err := m.asTyped(live, typed.AllowDuplicates)
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
	comparison, err := applied.Compare(current)
	if err != nil {
		return nil
	}
	return set.Difference(comparison.Modified).Difference(comparison.Added).Difference(comparison.Removed)
}

// syncLastApplied updates the annotation of client-side apply, if present, so that its user can
// return to client-side apply.
func syncLastApplied(manager string, obj registry.Object, patch map[string]any) error {
	annotations := obj.GetAnnotations()
	if manager != lastAppliedManager || annotations[corev1.LastAppliedConfigAnnotation] == "" {
		return nil
	}
	applied := (&unstructured.Unstructured{Object: patch}).DeepCopy()
	patchAnnotations := applied.GetAnnotations()
	delete(patchAnnotations, corev1.LastAppliedConfigAnnotation)
	applied.SetAnnotations(patchAnnotations)
	data, err := runtime.Encode(unstructured.UnstructuredJSONScheme, applied)
	if err != nil {
		return fmt.Errorf("encode the last applied configuration: %w", err)
	}
	annotations = maps.Clone(annotations)
	annotations[corev1.LastAppliedConfigAnnotation] = string(data)
	if validation.ValidateAnnotationsSize(annotations) != nil {
		delete(annotations, corev1.LastAppliedConfigAnnotation)
	}
	obj.SetAnnotations(annotations)
	return nil
}
