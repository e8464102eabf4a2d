package apply

import (
	"bytes"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"binnacle/services/apiserver/internal/customresource/tape"
	"binnacle/services/apiserver/internal/registry"
)

// Recorded is the managedFields of an object as the object holds them: in documents
// they are trees, which are not converted to be kept for a while or compared.
type Recorded struct {
	list []metav1.ManagedFieldsEntry
	tree any // of a document; nil for none
	doc  bool
}

// RecordedIn takes them from an object.
func RecordedIn(obj registry.Object) Recorded {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return Recorded{tree: treeOf(u), doc: true}
	}
	return Recorded{list: obj.GetManagedFields()}
}

// Clone is for who has to keep them while others work on the object.
func (r Recorded) Clone() Recorded {
	r.list = slices.Clone(r.list)
	return r
}

// treeOf a document's managedFields; nil when there are none.
func treeOf(u *unstructured.Unstructured) any {
	meta, _ := u.Object["metadata"].(map[string]any)
	return meta["managedFields"]
}

// Into puts them into another state of the same object.
func (r Recorded) Into(obj registry.Object) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok || !r.doc {
		obj.SetManagedFields(r.list)
		return
	}
	meta, ok := u.Object["metadata"].(map[string]any)
	switch {
	case r.tree == nil:
		delete(meta, "managedFields")
	case ok:
		meta["managedFields"] = r.tree
	default:
		u.Object["metadata"] = map[string]any{"managedFields": r.tree}
	}
}

// SameButTimes tells whether two differ in nothing but times.
func (r Recorded) SameButTimes(o Recorded) bool {
	if !r.doc || !o.doc {
		return SameButTimes(r.list, o.list)
	}
	a, oka := listOf(r.tree)
	b, okb := listOf(o.tree)
	if !oka || !okb || len(a) != len(b) {
		return oka && okb && len(a) == len(b)
	}
	for i := range a {
		x, okx := a[i].(map[string]any)
		y, oky := b[i].(map[string]any)
		if !okx || !oky || !sameEntry(x, y) {
			return false
		}
	}
	return true
}

func listOf(tree any) ([]any, bool) {
	if tree == nil {
		return nil, true
	}
	list, ok := tree.([]any)
	return list, ok
}

func sameEntry(x, y map[string]any) bool {
	counts := func(m map[string]any) int {
		if _, ok := m["time"]; ok {
			return len(m) - 1
		}
		return len(m)
	}
	if counts(x) != counts(y) {
		return false
	}
	for name, v := range x {
		if w, ok := y[name]; name != "time" && (!ok || !tape.EqualValues(v, w)) {
			return false
		}
	}
	return true
}

// Entries are the list of managedFields.
func (r Recorded) Entries() []metav1.ManagedFieldsEntry {
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
		return u.GetManagedFields() // which takes what is odd for nothing
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// entryOf reads one entry; false for what is odd.
func entryOf(tree any) (e metav1.ManagedFieldsEntry, ok bool) {
	m, ok := tree.(map[string]any)
	for name, v := range m {
		text, is := v.(string)
		switch name {
		case "manager":
			e.Manager = text
		case "operation":
			e.Operation = metav1.ManagedFieldsOperationType(text)
		case "apiVersion":
			e.APIVersion = text
		case "fieldsType":
			e.FieldsType = text
		case "subresource":
			e.Subresource = text
		case "time":
			t, err := time.Parse(time.RFC3339, text)
			e.Time = &metav1.Time{Time: t.Local()}
			is = is && err == nil
		case "fieldsV1":
			fields, isMap := v.(map[string]any)
			raw, err := tape.AppendValue(nil, fields)
			e.FieldsV1 = &metav1.FieldsV1{Raw: raw}
			is = isMap && err == nil
		default:
			is = false
		}
		ok = ok && is
	}
	return e, ok
}

// setManagedFields is that of the object, without reflection for documents. asked are the
// entries of before, whose trees stay where they say the same.
func setManagedFields(obj registry.Object, list []metav1.ManagedFieldsEntry, before Recorded, asked []metav1.ManagedFieldsEntry) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok || len(list) == 0 {
		obj.SetManagedFields(list)
		return
	}
	trees := make([]any, len(list))
	for i := range list {
		tree, ok := treeOfEntry(&list[i], func(raw []byte) any { return before.fields(asked, raw) })
		if !ok {
			obj.SetManagedFields(list)
			return
		}
		trees[i] = tree
	}
	Recorded{tree: trees, doc: true}.Into(u)
}

// fields is the tree of a set of fields that is recorded already, nil for another.
func (r Recorded) fields(entries []metav1.ManagedFieldsEntry, raw []byte) any {
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

// treeOfEntry is the tree of an entry; known finds that of its fields, where there is one.
func treeOfEntry(e *metav1.ManagedFieldsEntry, known func(raw []byte) any) (map[string]any, bool) {
	m := make(map[string]any, 7)
	put := func(name, text string) {
		if text != "" {
			m[name] = text
		}
	}
	put("manager", e.Manager)
	put("operation", string(e.Operation))
	put("apiVersion", e.APIVersion)
	put("fieldsType", e.FieldsType)
	put("subresource", e.Subresource)
	if e.Time != nil {
		if e.Time.IsZero() {
			return nil, false
		}
		m["time"] = e.Time.UTC().Format(time.RFC3339)
	}
	if e.FieldsV1 == nil {
		return m, true
	}
	fields := known(e.FieldsV1.Raw)
	if fields == nil {
		d, err := tape.Parse(e.FieldsV1.Raw)
		if err != nil {
			return nil, false
		}
		defer d.Release()
		fields = d.Any(tape.Root)
	}
	m["fieldsV1"] = fields
	return m, true
}

// apart are what two trees do not have in common: members of objects that are the same
// in both are left out, however deep. differ is false when nothing is left.
func apart(a, b map[string]any) (x, y map[string]any, differ bool) {
	x, y = map[string]any{}, map[string]any{}
	for name, v := range a {
		w, ok := b[name]
		if !ok {
			x[name] = v
			continue
		}
		vm, isMap := v.(map[string]any)
		wm, areMaps := w.(map[string]any)
		if isMap && areMaps {
			if p, q, differ := apart(vm, wm); differ {
				x[name], y[name] = p, q
			}
		} else if !tape.EqualValues(v, w) {
			x[name], y[name] = v, w
		}
	}
	for name, w := range b {
		if _, ok := a[name]; !ok {
			y[name] = w
		}
	}
	return x, y, len(x) > 0 || len(y) > 0
}

// withoutSame are two objects without what documents have in common, and without what
// was recorded, which nobody owns.
func withoutSame(a, b registry.Object) (registry.Object, registry.Object) {
	x, ok := a.(*unstructured.Unstructured)
	y, both := b.(*unstructured.Unstructured)
	if !ok || !both || len(x.Object) == 0 {
		return a, b
	}
	p, q, _ := apart(withoutRecorded(x.Object), withoutRecorded(y.Object))
	return &unstructured.Unstructured{Object: p}, &unstructured.Unstructured{Object: q}
}

// withoutRecorded is a tree without managedFields, which shares the rest.
func withoutRecorded(tree map[string]any) map[string]any {
	meta, ok := tree["metadata"].(map[string]any)
	if _, has := meta["managedFields"]; !ok || !has {
		return tree
	}
	tree, meta = maps.Clone(tree), maps.Clone(meta)
	delete(meta, "managedFields")
	tree["metadata"] = meta
	return tree
}

// clearlyDiffer tells whether two documents have another text, number or truth at one
// place, which somebody owns. They may differ otherwise.
func clearlyDiffer(a, b map[string]any, at func(name string) bool) bool {
	for name, v := range a {
		w, ok := b[name]
		if !ok || !at(name) {
			continue
		}
		switch v := v.(type) {
		case map[string]any:
			if wm, is := w.(map[string]any); is && clearlyDiffer(v, wm, everywhere) {
				return true
			}
		case string:
			if text, is := w.(string); is && text != v {
				return true
			}
		case int64:
			if n, is := w.(int64); is && n != v {
				return true
			}
		case bool:
			if is, ok := w.(bool); ok && is != v {
				return true
			}
		}
	}
	return false
}

func everywhere(string) bool { return true }

// documentsClearlyDiffer is clearlyDiffer for whole objects.
func documentsClearlyDiffer(a, b registry.Object) bool {
	x, ok := a.(*unstructured.Unstructured)
	y, both := b.(*unstructured.Unstructured)
	if !ok || !both {
		return false
	}
	xm, _ := x.Object["metadata"].(map[string]any)
	ym, _ := y.Object["metadata"].(map[string]any)
	return clearlyDiffer(xm, ym, func(name string) bool { return !serverOwned(name) }) ||
		clearlyDiffer(x.Object, y.Object, func(name string) bool { return name != "metadata" && name != "apiVersion" && name != "kind" })
}
