package apply

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v4/merge"
	smd "sigs.k8s.io/structured-merge-diff/v4/schema"
	"sigs.k8s.io/structured-merge-diff/v4/typed"
	"sigs.k8s.io/structured-merge-diff/v4/value"

	"binnacle/services/apiserver/internal/registry"
)

// Apply merges the patch of a field manager into live, which is an empty object if none exists. It
// returns the defaulted result with its managedFields. A conflict is a 409 that names each field
// and its owner, unless force is set. Apply changes neither argument. ctx bounds conversions by a
// webhook.
func (m *Manager) Apply(
	ctx context.Context,
	live registry.Object,
	patch map[string]any,
	manager string,
	force bool,
) (registry.Object, error) {
	obj, err := m.applyUnmapped(ctx, live, patch, manager, force)
	if err != nil {
		return nil, m.representation.apiError(err)
	}
	return obj, nil
}

// applyUnmapped is Apply without the mapping of errors for clients.
func (m *Manager) applyUnmapped(
	ctx context.Context,
	live registry.Object,
	patch map[string]any,
	manager string,
	force bool,
) (registry.Object, error) {
	// 1. Check the patch.
	gvk, err := m.checkPatch(patch)
	if err != nil {
		return nil, err
	}
	applied := typed.AsTypedUnvalidated(value.NewValueInterface(patch), m.typed().Schema, m.typed().TypeRef)
	if exceedsLimits(applied) { // before the validation
		return nil, errExceedsLimits()
	}

	// 2. Read the owners of the live object. If it has none, one entry owns all of its fields.
	live = live.DeepCopyObject().(registry.Object)
	entries, err := m.decode(live.GetManagedFields())
	if err != nil {
		return nil, fmt.Errorf("decode the live object's managedFields: %w", err)
	}
	if len(entries) == 0 {
		if err := m.recordChanges(ctx, nil, live, entries, m.newOwner(firstManager, metav1.ManagedFieldsOperationUpdate)); err != nil {
			return nil, err
		}
	}

	// 3. Convert the patch and the live object for the merge library.
	live.SetManagedFields(nil)
	live.GetObjectKind().SetGroupVersionKind(gvk)
	if applied, err = m.typed().FromUnstructured(patch); err != nil { // duplicates are not allowed here
		return nil, apierrors.NewBadRequest(fmt.Sprintf("failed to create typed patch object (%s; %s): %v", nameOf(patch), gvk, err))
	}
	typedLive, err := m.asTyped(live, typed.AllowDuplicates)
	if err != nil {
		return nil, fmt.Errorf("type the live object: %w", err)
	}
	if exceedsLimits(typedLive) {
		return nil, errExceedsLimits()
	}

	// 4. Merge. Conflicts with fields that only client-side apply has set do not count.
	applier := m.newOwner(manager, metav1.ManagedFieldsOperationApply)
	result, err := m.mergeApplied(ctx, typedLive, applied, entries, applier, force)
	if conflicts := (merge.Conflicts)(nil); errors.As(err, &conflicts) {
		conflicts = m.withoutLastApplied(manager, live, conflicts)
		if len(conflicts) == 0 {
			result, err = m.mergeApplied(ctx, typedLive, applied, entries, applier, true)
		} else {
			return nil, conflictError(conflicts)
		}
	}
	if err != nil {
		return nil, err
	}

	// 5. Return the object with its new owners.
	out := live
	if result.object != nil {
		if out, err = m.toObject(result.object); err != nil {
			return nil, err
		}
	}
	entries = m.entriesAfter(result, entries, applier)
	if err := syncLastApplied(manager, out, patch); err != nil {
		return nil, err
	}
	m.representation.prepareForStorage(out)
	list, err := entries.encode()
	if err != nil {
		return nil, err
	}
	out.SetManagedFields(list)
	return out, nil
}

// checkPatch checks the kind and the managedFields of an apply patch and returns the kind.
func (m *Manager) checkPatch(patch map[string]any) (schema.GroupVersionKind, error) {
	object := unstructured.Unstructured{Object: patch}
	gvk := object.GroupVersionKind()
	if gvk != m.gvk {
		return gvk, apierrors.NewBadRequest(fmt.Sprintf("invalid object type: %v", gvk))
	}
	if meta, ok := patch["metadata"].(map[string]any); ok && meta["managedFields"] != nil {
		return gvk, apierrors.NewBadRequest("metadata.managedFields must be nil")
	}
	return gvk, nil
}

// nameOf returns the namespace and name of a patch for messages.
func nameOf(patch map[string]any) string {
	object := unstructured.Unstructured{Object: patch}
	return object.GetNamespace() + "/" + object.GetName()
}

// merged is the result of a merge. object is nil if nothing changes.
type merged struct {
	object *typed.TypedValue
	sets   fieldpath.ManagedFields
}

// mergeApplied merges an applied value into the live one with the merge library. It does not change
// entries. A conflict is merge.Conflicts, unless force is set.
func (m *Manager) mergeApplied(
	ctx context.Context,
	live, applied *typed.TypedValue,
	entries managed,
	applier owner,
	force bool,
) (merged, error) {
	sets := fieldpath.ManagedFields{}
	filters := map[fieldpath.APIVersion]fieldpath.Filter{}
	for entryOwner, entry := range entries {
		sets[entryOwner.id()] = fieldpath.NewVersionedSet(entry.Set, fieldpath.APIVersion(entry.version), entryOwner.isApply())
		if m.filter != nil {
			filters[fieldpath.APIVersion(entry.version)] = m.filter
		}
	}
	version := fieldpath.APIVersion(m.gvk.GroupVersion().String())
	if m.filter != nil {
		filters[version] = m.filter
	}
	updater := merge.UpdaterBuilder{Converter: &versions{m.view, ctx}, IgnoreFilter: filters}
	object, sets, err := updater.BuildUpdater().Apply(live, applied, version, sets, applier.id(), force)
	return merged{object: object, sets: sets}, err
}

// entriesAfter converts the owners after a merge to entries. If the object changes, the applier's
// entry gets the current time.
func (m *Manager) entriesAfter(result merged, before managed, applier owner) managed {
	entries := managed{}
	for id, versioned := range result.sets {
		entryOwner := ownerOf(id)
		set := versioned.Set()
		if entryOwner == applier {
			set = set.Difference(unownedFields)
		}
		if set.Empty() && entryOwner == applier {
			continue
		}
		managedEntry := &entry{fieldSet: fieldSet{Set: set}, version: string(versioned.APIVersion())}
		if previous := before[entryOwner]; previous != nil {
			managedEntry.time = previous.time
			if previous.raw != nil && previous.Equals(set) {
				managedEntry.fieldSet = previous.fieldSet
			}
		}
		if entryOwner == applier && result.object != nil {
			managedEntry.time = truncateTime(m.fields.now())
		}
		entries[entryOwner] = managedEntry
	}
	return entries
}

// toObject converts a merged value to a defaulted object of the kind.
func (v *view) toObject(merged *typed.TypedValue) (registry.Object, error) {
	obj, err := v.fromTyped(merged)
	if err != nil {
		return nil, err
	}
	return v.representation.setDefaults(obj)
}

// fromTyped converts a typed value to an object of the kind.
func (v *view) fromTyped(typedObject *typed.TypedValue) (registry.Object, error) {
	content, ok := typedObject.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%T is not an object", typedObject.AsValue().Unstructured())
	}
	obj := v.kind.New().(registry.Object)
	if document, ok := obj.(runtime.Unstructured); ok {
		document.SetUnstructuredContent(content)
		return obj, nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, obj); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the merged object is not a %s: %v", v.kind.Kind, err))
	}
	return obj, nil
}

// Configure merges a configuration into an object and returns the tree of the result, which may
// share memory with both. It does not change managedFields. It rejects a configuration that sets
// atomic lists, maps or structs. kind may be nil for objects with a Go type.
func (f *Fields) Configure(kind *registry.Kind, obj runtime.Object, configuration map[string]any) (map[string]any, error) {
	parseableType := f.mergeTypeFor(kind, obj)
	patch := typed.AsTypedUnvalidated(value.NewValueInterface(configuration), parseableType.Schema, parseableType.TypeRef)
	if exceedsLimits(patch) { // before the validation
		return nil, errExceedsLimits()
	}
	patch, err := parseableType.FromUnstructured(configuration)
	if err == nil {
		err = checkNumbers(obj, configuration)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to convert patch object to typed object: %w", err)
	}
	if found := atomicPaths(nil, parseableType.Schema, parseableType.TypeRef, patch.AsValue()); len(found) > 0 {
		return nil, fmt.Errorf("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: %s",
			strings.Join(found, ", "))
	}
	var live *typed.TypedValue
	if document, ok := obj.(runtime.Unstructured); ok {
		live, err = parseableType.FromUnstructured(document.UnstructuredContent(), typed.AllowDuplicates)
	} else {
		live, err = parseableType.FromStructured(obj, typed.AllowDuplicates)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to convert original object to typed object: %w", err)
	}
	if exceedsLimits(live) {
		return nil, errExceedsLimits()
	}
	merged, err := live.Merge(patch)
	if err != nil {
		return nil, fmt.Errorf("failed to merge patch: %w", err)
	}
	tree, ok := merged.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("failed to convert typed object to object: %T is not an object", merged.AsValue().Unstructured())
	}
	return tree, nil
}

// mergeTypeFor returns the merge rules of an object. kind is nil for objects with a Go type.
func (f *Fields) mergeTypeFor(kind *registry.Kind, obj runtime.Object) typed.ParseableType {
	switch {
	case kind != nil && kind.MergeType != nil:
		return kind.MergeType()
	case untypedObject(obj):
		return typed.DeducedParseableType
	}
	return f.types.rulesFor(reflect.TypeOf(obj).Elem())
}

// checkNumbers rejects numbers that overflow the Go type. The conversion of a tree to an object
// would truncate them.
func checkNumbers(obj runtime.Object, configuration map[string]any) error {
	if untypedObject(obj) {
		return nil
	}
	doc, err := json.Marshal(configuration)
	if err != nil {
		return err
	}
	return json.Unmarshal(doc, reflect.New(reflect.TypeOf(obj).Elem()).Interface())
}

// atomicPaths returns the paths of atomic lists and maps in a value.
func atomicPaths(at fieldpath.Path, rules *smd.Schema, ref smd.TypeRef, typedValue value.Value) (found []string) {
	atom, ok := rules.Resolve(ref)
	switch {
	case !ok || typedValue == nil || typedValue.IsNull():
	case typedValue.IsMap() && atom.Map != nil:
		if atom.Map.ElementRelationship == smd.Atomic {
			found = append(found, at.String())
		}
		typedValue.AsMap().Iterate(func(name string, field value.Value) bool {
			if f, ok := atom.Map.FindField(name); ok {
				found = append(found, atomicPaths(append(at, fieldpath.PathElement{FieldName: &name}), rules, f.Type, field)...)
			}
			return true
		})
	case typedValue.IsList() && atom.List != nil:
		if atom.List.ElementRelationship == smd.Atomic {
			found = append(found, at.String())
		}
		list := typedValue.AsList()
		for i := range list.Length() {
			found = append(found, atomicPaths(append(at, fieldpath.PathElement{Index: &i}), rules, atom.List.ElementType, list.At(i))...)
		}
	}
	return found
}
