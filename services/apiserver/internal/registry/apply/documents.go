package apply

import (
	"bytes"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"binnacle/services/apiserver/internal/json/tape"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/meta"
)

// ManagedFields holds the managedFields of an object in the object's own representation. For
// documents they are trees, which can be restored and compared without conversion.
type ManagedFields struct {
	list []metav1.ManagedFieldsEntry
	tree any // of a document; nil without managedFields
	doc  bool
}

// ManagedFieldsOf returns the managedFields of an object.
func ManagedFieldsOf(obj registry.Object) ManagedFields {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return ManagedFields{tree: treeOf(u), doc: true}
	}
	return ManagedFields{list: obj.GetManagedFields()}
}

// Clone returns a copy that does not change while other code changes the object.
func (r ManagedFields) Clone() ManagedFields {
	r.list = slices.Clone(r.list)
	return r
}

// treeOf returns a document's managedFields, or nil.
func treeOf(u *unstructured.Unstructured) any {
	meta, _ := u.Object["metadata"].(map[string]any)
	return meta["managedFields"]
}

// ApplyTo sets the managedFields of another state of the same object.
func (r ManagedFields) ApplyTo(obj registry.Object) {
	object, ok := obj.(*unstructured.Unstructured)
	if !ok || !r.doc {
		obj.SetManagedFields(r.list)
		return
	}
	meta, ok := object.Object["metadata"].(map[string]any)
	switch {
	case r.tree == nil:
		delete(meta, "managedFields")
	case ok:
		meta["managedFields"] = r.tree
	default:
		object.Object["metadata"] = map[string]any{"managedFields": r.tree}
	}
}

// EqualExceptTimes reports whether two managedFields are equal, except for their times.
func (r ManagedFields) EqualExceptTimes(o ManagedFields) bool {
	if !r.doc || !o.doc {
		return EqualExceptTimes(r.list, o.list)
	}
	a, aIsList := listOf(r.tree)
	b, bIsList := listOf(o.tree)
	if !aIsList || !bIsList || len(a) != len(b) {
		return aIsList && bIsList && len(a) == len(b)
	}
	for i := range a {
		x, xIsMap := a[i].(map[string]any)
		y, yIsMap := b[i].(map[string]any)
		if !xIsMap || !yIsMap || !sameEntry(x, y) {
			return false
		}
	}
	return true
}

// listOf returns managedFields as a list; nil is an empty list. It returns false if they are not a
// list.
func listOf(tree any) ([]any, bool) {
	if tree == nil {
		return nil, true
	}
	list, ok := tree.([]any)
	return list, ok
}

// sameEntry reports whether two entries of managedFields are equal, except for their times.
func sameEntry(treeA, treeB map[string]any) bool {
	size := func(members map[string]any) int {
		if _, ok := members["time"]; ok {
			return len(members) - 1
		}
		return len(members)
	}
	if size(treeA) != size(treeB) {
		return false
	}
	for name, v := range treeA {
		if w, ok := treeB[name]; name != "time" && (!ok || !tape.EqualValues(v, w)) {
			return false
		}
	}
	return true
}

// Entries returns the managedFields as a list.
func (r ManagedFields) Entries() []metav1.ManagedFieldsEntry {
	if !r.doc {
		return r.list
	}
	trees, ok := listOf(r.tree)
	out := make([]metav1.ManagedFieldsEntry, 0, len(trees))
	for i := 0; ok && i < len(trees); i++ {
		var e metav1.ManagedFieldsEntry
		if e, ok = entryOf(trees[i]); ok {
			out = append(out, e)
		}
	}
	if !ok {
		u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"managedFields": r.tree}}}
		return u.GetManagedFields() // which ignores invalid entries
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// entryOf decodes one entry. It returns false for an entry with unknown or mistyped fields.
func entryOf(tree any) (metav1.ManagedFieldsEntry, bool) {
	return meta.DecodeEntry(tree, func(fields map[string]any) (*metav1.FieldsV1, error) {
		raw, err := tape.AppendValue(nil, fields)
		return &metav1.FieldsV1{Raw: raw}, err
	})
}

// setManagedFields sets the managedFields of the object, without reflection for documents.
// requested holds the decoded entries of before. Equal field sets reuse the trees of before.
func setManagedFields(
	obj registry.Object,
	list []metav1.ManagedFieldsEntry,
	before ManagedFields,
	requested []metav1.ManagedFieldsEntry,
) {
	object, ok := obj.(*unstructured.Unstructured)
	if !ok || len(list) == 0 {
		obj.SetManagedFields(list)
		return
	}
	trees := make([]any, len(list))
	for i := range list {
		tree, ok := treeOfEntry(&list[i], func(raw []byte) any { return before.recordedFields(requested, raw) })
		if !ok {
			obj.SetManagedFields(list)
			return
		}
		trees[i] = tree
	}
	ManagedFields{tree: trees, doc: true}.ApplyTo(object)
}

// recordedFields returns the tree of a field set, given by its encoding raw, or nil if r does not
// contain it. entries holds the decoded entries of r.
func (r ManagedFields) recordedFields(entries []metav1.ManagedFieldsEntry, raw []byte) any {
	trees, _ := r.tree.([]any)
	if len(trees) != len(entries) {
		return nil
	}
	for i := range entries {
		if f := entries[i].FieldsV1; f != nil && bytes.Equal(f.Raw, raw) {
			if m, ok := trees[i].(map[string]any); ok {
				return m["fieldsV1"]
			}
		}
	}
	return nil
}

// treeOfEntry returns the tree of an entry. known returns the existing tree of its fields, or nil.
func treeOfEntry(entry *metav1.ManagedFieldsEntry, known func(raw []byte) any) (map[string]any, bool) {
	tree := make(map[string]any, 7)
	setText := func(name, text string) {
		if text != "" {
			tree[name] = text
		}
	}
	setText("manager", entry.Manager)
	setText("operation", string(entry.Operation))
	setText("apiVersion", entry.APIVersion)
	setText("fieldsType", entry.FieldsType)
	setText("subresource", entry.Subresource)
	if entry.Time != nil {
		if entry.Time.IsZero() {
			return nil, false
		}
		tree["time"] = entry.Time.UTC().Format(time.RFC3339)
	}
	if entry.FieldsV1 == nil {
		return tree, true
	}
	fields := known(entry.FieldsV1.Raw)
	if fields == nil {
		doc, err := tape.Parse(entry.FieldsV1.Raw)
		if err != nil {
			return nil, false
		}
		defer doc.Release()
		fields = doc.Any(tape.Root)
	}
	tree["fieldsV1"] = fields
	return tree, true
}

// differingParts returns the parts of two trees that differ. It omits members that are equal in
// both, at any depth. differ is false if no part is left.
func differingParts(a, b map[string]any) (partsA, partsB map[string]any, differ bool) {
	partsA = map[string]any{}
	partsB = map[string]any{}
	for name, valueA := range a {
		valueB, ok := b[name]
		if !ok {
			partsA[name] = valueA
			continue
		}
		vm, vIsMap := valueA.(map[string]any)
		wm, wIsMap := valueB.(map[string]any)
		if vIsMap && wIsMap {
			if p, q, differ := differingParts(vm, wm); differ {
				partsA[name], partsB[name] = p, q
			}
		} else if !tape.EqualValues(valueA, valueB) {
			partsA[name], partsB[name] = valueA, valueB
		}
	}
	for name, valueB := range b {
		if _, ok := a[name]; !ok {
			partsB[name] = valueB
		}
	}
	return partsA, partsB, len(partsA) > 0 || len(partsB) > 0
}

// withoutEqualParts returns two objects without the parts that documents have in common, and
// without managedFields, which have no owner.
func withoutEqualParts(a, b registry.Object) (registry.Object, registry.Object) {
	x, aIsDocument := a.(*unstructured.Unstructured)
	y, bIsDocument := b.(*unstructured.Unstructured)
	if !aIsDocument || !bIsDocument || len(x.Object) == 0 {
		return a, b
	}
	p, q, _ := differingParts(withoutManagedFields(x.Object), withoutManagedFields(y.Object))
	return &unstructured.Unstructured{Object: p}, &unstructured.Unstructured{Object: q}
}

// withoutManagedFields returns a tree without managedFields that shares all other parts.
func withoutManagedFields(tree map[string]any) map[string]any {
	meta, ok := tree["metadata"].(map[string]any)
	if _, has := meta["managedFields"]; !ok || !has {
		return tree
	}
	tree = maps.Clone(tree)
	meta = maps.Clone(meta)
	delete(meta, "managedFields")
	tree["metadata"] = meta
	return tree
}

// clearlyDiffer reports whether two documents have different strings, integers or booleans at a path
// below the included names. It is a fast check: they may differ in other ways even if it returns
// false.
func clearlyDiffer(a, b map[string]any, include func(name string) bool) bool {
	for name, valueA := range a {
		valueB, ok := b[name]
		if !ok || !include(name) {
			continue
		}
		switch valueA := valueA.(type) {
		case map[string]any:
			if wm, ok := valueB.(map[string]any); ok && clearlyDiffer(valueA, wm, includeAll) {
				return true
			}
		case string:
			if text, ok := valueB.(string); ok && text != valueA {
				return true
			}
		case int64:
			if n, ok := valueB.(int64); ok && n != valueA {
				return true
			}
		case bool:
			if flag, ok := valueB.(bool); ok && flag != valueA {
				return true
			}
		}
	}
	return false
}

func includeAll(string) bool { return true }

// documentsClearlyDiffer is clearlyDiffer for the owned fields of two objects.
func documentsClearlyDiffer(a, b registry.Object) bool {
	documentA, aIsDocument := a.(*unstructured.Unstructured)
	documentB, bIsDocument := b.(*unstructured.Unstructured)
	if !aIsDocument || !bIsDocument {
		return false
	}
	metaX, _ := documentA.Object["metadata"].(map[string]any)
	metaY, _ := documentB.Object["metadata"].(map[string]any)
	isOwnedMeta := func(name string) bool { return !serverOwned(name) }
	isOwned := func(name string) bool { return name != "metadata" && name != "apiVersion" && name != "kind" }
	return clearlyDiffer(metaX, metaY, isOwnedMeta) || clearlyDiffer(documentA.Object, documentB.Object, isOwned)
}
