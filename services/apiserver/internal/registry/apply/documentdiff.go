package apply

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
	smd "sigs.k8s.io/structured-merge-diff/v4/schema"
	"sigs.k8s.io/structured-merge-diff/v4/value"

	"binnacle/services/apiserver/internal/json/tape"
	"binnacle/services/apiserver/internal/registry"
)

// documentDifferences compares two documents. live may be nil. The result equals the result of the
// merge library. It returns false for unusual documents, such as those that violate the merge
// rules; the caller then uses the library.
func (v *view) documentDifferences(live, obj registry.Object) (*changes, bool) {
	document, ok := obj.(runtime.Unstructured)
	if !ok {
		return nil, false
	}
	var liveContent map[string]any
	if live != nil {
		u, ok := live.(runtime.Unstructured)
		if !ok {
			return nil, false
		}
		liveContent = u.UnstructuredContent()
	}
	rules := v.typed()
	root, ok := rules.Schema.Resolve(rules.TypeRef)
	if !ok || root.Map == nil || root.Map.ElementRelationship == smd.Atomic {
		return nil, false
	}
	diff := documentDiffPool.Get().(*documentDiff)
	defer diff.release()
	diff.schema = rules.Schema
	diff.set.root = fieldpath.NewSet()
	diff.removed.root = fieldpath.NewSet()
	if !diff.compareObjects(root.Map, liveContent, document.UnstructuredContent()) {
		return nil, false
	}
	return &changes{set: diff.set.root, removed: diff.removed.root}, true
}

var documentDiffPool = sync.Pool{New: func() any { return &documentDiff{path: make(fieldpath.Path, 0, 16)} }}

// documentDiff collects the fields in which documents differ.
type documentDiff struct {
	schema       *smd.Schema
	set, removed pathSet
	path         fieldpath.Path
	// oneSided is the pathSet that records values that only one document has: set or removed.
	oneSided *pathSet
	// insideAtomic reports whether the path is inside an atomic value. Fields below it are checked
	// but not recorded.
	insideAtomic bool
	// names is a stack of the sorted member names of the objects on the path.
	names []string
}

// release clears the diff, so that it retains no object, and returns it to the pool.
func (d *documentDiff) release() {
	clear(d.path[:cap(d.path)])
	clear(d.names[:cap(d.names)])
	clear(d.set.nodes[:cap(d.set.nodes)])
	clear(d.removed.nodes[:cap(d.removed.nodes)])
	*d = documentDiff{
		path:    d.path[:0],
		names:   d.names[:0],
		set:     pathSet{nodes: d.set.nodes[:0]},
		removed: pathSet{nodes: d.removed.nodes[:0]},
	}
	documentDiffPool.Put(d)
}

func (d *documentDiff) withElement(element fieldpath.PathElement, visit func() bool) bool {
	d.path = append(d.path, element)
	ok := visit()
	d.path = d.path[:len(d.path)-1]
	d.set.truncate(len(d.path))
	d.removed.truncate(len(d.path))
	return ok
}

// addOneSided adds a value that only one document has to side.
func (d *documentDiff) addOneSided(side *pathSet, element fieldpath.PathElement, ref smd.TypeRef, v any) bool {
	d.oneSided = side
	return d.addChild(element, ref, v)
}

// compareValues compares two unequal values at the path.
func (d *documentDiff) compareValues(ref smd.TypeRef, a, b any) bool {
	atom, ok := d.schema.Resolve(ref)
	if !ok {
		return false
	}
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || atom.Map == nil {
			return false
		}
		if atom.Map.ElementRelationship != smd.Atomic {
			return d.compareObjects(atom.Map, a, b)
		}
	case []any:
		b, ok := b.([]any)
		if !ok || atom.List == nil {
			return false
		}
		if atom.List.ElementRelationship != smd.Atomic {
			return d.compareLists(atom.List, a, b)
		}
	default:
		if atom.Scalar == nil || !matchesScalar(*atom.Scalar, a) || !matchesScalar(*atom.Scalar, b) {
			return false
		}
	}
	ok = d.matchesType(ref, a) && d.matchesType(ref, b)
	if ok && !value.Equals(value.NewValueInterface(a), value.NewValueInterface(b)) {
		d.set.insert(d.path)
	}
	return ok
}

// matchesType reports whether a value matches its type, without recording any field.
func (d *documentDiff) matchesType(ref smd.TypeRef, value any) bool {
	previous := d.insideAtomic
	d.insideAtomic = true
	ok := d.addValue(ref, value)
	d.insideAtomic = previous
	return ok
}

// compareObjects compares two objects with the given rules. It returns false if the comparison
// needs the library.
func (d *documentDiff) compareObjects(rules *smd.Map, a, b map[string]any) bool {
	if len(a) > MaxMembers || len(b) > MaxMembers {
		return false
	}
	start := len(d.names)
	for name, valueA := range a {
		if name == "managedFields" && d.inMetadata() {
			continue // managedFields has no owner
		}
		if valueB, ok := b[name]; !ok || !tape.EqualValues(valueA, valueB) {
			d.names = append(d.names, name)
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok && !(name == "managedFields" && d.inMetadata()) {
			d.names = append(d.names, name)
		}
	}
	end := len(d.names)
	slices.Sort(d.names[start:end]) // insertion into a set is fast in order
	for i := start; i < end; i++ {
		name := d.names[i]
		ref, ok := memberType(rules, name)
		if !ok {
			return false
		}
		valueA, inA := a[name]
		valueB, inB := b[name]
		element := fieldpath.PathElement{FieldName: &name}
		switch {
		case !inA:
			ok = d.addOneSided(&d.set, element, ref, valueB)
		case !inB:
			ok = d.addOneSided(&d.removed, element, ref, valueA)
		default:
			ok = d.withElement(element, func() bool { return d.compareValues(ref, valueA, valueB) })
		}
		if !ok {
			return false
		}
	}
	d.names = d.names[:start]
	return true
}

func (d *documentDiff) inMetadata() bool {
	return len(d.path) == 1 && d.path[0].FieldName != nil && *d.path[0].FieldName == "metadata"
}

// memberType returns the type of an object's member. It returns false if the rules allow no such
// member.
func memberType(rules *smd.Map, name string) (ref smd.TypeRef, ok bool) {
	if f, ok := rules.FindField(name); ok {
		return f.Type, true
	}
	return rules.ElementType, rules.ElementType != (smd.TypeRef{})
}

// compareLists compares two associative lists. It returns false if the comparison needs the
// library.
func (d *documentDiff) compareLists(rules *smd.List, a, b []any) bool {
	if len(a) > MaxMembers || len(b) > MaxMembers {
		return false
	}
	before := fieldpath.MakePathElementMap(len(a))
	for _, valueA := range a {
		pathElement, ok := elementOf(rules, valueA)
		if !ok {
			return false
		}
		if _, twice := before.Get(pathElement); twice {
			return false
		}
		before.Insert(pathElement, valueA)
	}
	now := fieldpath.MakePathElementMap(len(b))
	for _, valueB := range b {
		pathElement, ok := elementOf(rules, valueB)
		if !ok {
			return false
		}
		if _, twice := now.Get(pathElement); twice {
			return false
		}
		now.Insert(pathElement, valueB)
		valueA, exists := before.Get(pathElement)
		switch {
		case !exists:
			ok = d.addOneSided(&d.set, pathElement, rules.ElementType, valueB)
		case !tape.EqualValues(valueA, valueB):
			ok = d.withElement(pathElement, func() bool { return d.compareValues(rules.ElementType, valueA, valueB) })
		default: // equal elements are still checked, because the lists differ
			ok = d.matchesType(rules.ElementType, valueB)
		}
		if !ok {
			return false
		}
	}
	for _, valueA := range a {
		pathElement, _ := elementOf(rules, valueA)
		if _, exists := now.Get(pathElement); !exists && !d.addOneSided(&d.removed, pathElement, rules.ElementType, valueA) {
			return false
		}
	}
	return true
}

// addValue records a value at the path that only one document has. It returns false for unusual
// values.
func (d *documentDiff) addValue(ref smd.TypeRef, value any) bool {
	atom, ok := d.schema.Resolve(ref)
	if !ok {
		return false
	}
	switch value := value.(type) {
	case nil:
		ok = atom.Map != nil || atom.List != nil || atom.Scalar != nil
	case map[string]any:
		ok = atom.Map != nil && d.addFields(atom.Map, value)
	case []any:
		ok = atom.List != nil && d.addElements(atom.List, value)
	default:
		ok = atom.Scalar != nil && matchesScalar(*atom.Scalar, value)
	}
	if ok && !d.insideAtomic && len(d.path) > 0 {
		d.oneSided.insert(d.path)
	}
	return ok
}

func matchesScalar(expected smd.Scalar, v any) bool {
	switch v.(type) {
	case string:
		return expected == smd.String || expected == smd.Untyped
	case bool:
		return expected == smd.Boolean || expected == smd.Untyped
	case int64, float64:
		return expected == smd.Numeric || expected == smd.Untyped
	}
	return false
}

// addChild calls addValue with element appended to the path.
func (d *documentDiff) addChild(element fieldpath.PathElement, ref smd.TypeRef, value any) bool {
	if d.insideAtomic { // no field is recorded
		return d.addValue(ref, value)
	}
	return d.withElement(element, func() bool { return d.addValue(ref, value) })
}

// addFields adds the fields of an object that only one side has. It returns false if the comparison
// needs the library.
func (d *documentDiff) addFields(rules *smd.Map, members map[string]any) bool {
	was := d.insideAtomic
	d.insideAtomic = was || rules.ElementRelationship == smd.Atomic
	defer func() { d.insideAtomic = was }()
	if !d.insideAtomic && len(members) > MaxMembers {
		return false
	}
	start := len(d.names)
	for name := range members {
		d.names = append(d.names, name)
	}
	end := len(d.names)
	slices.Sort(d.names[start:end]) // insertion into a set is fast in order
	for i := start; i < end; i++ {
		name := d.names[i]
		ref, ok := memberType(rules, name)
		if !ok {
			return false
		}
		if !d.addChild(fieldpath.PathElement{FieldName: &name}, ref, members[name]) {
			return false
		}
	}
	d.names = d.names[:start]
	return true
}

// addElements adds the elements of a list that only one side has. It returns false if the
// comparison needs the library.
func (d *documentDiff) addElements(rules *smd.List, list []any) bool {
	was := d.insideAtomic
	d.insideAtomic = was || rules.ElementRelationship == smd.Atomic
	defer func() { d.insideAtomic = was }()
	keyed := rules.ElementRelationship == smd.Associative
	if keyed && len(list) > MaxMembers {
		return false
	}
	var seen fieldpath.PathElementSet
	for _, value := range list {
		var element fieldpath.PathElement
		if keyed {
			var ok bool
			element, ok = elementOf(rules, value)
			if !ok || !d.insideAtomic && seen.Has(element) {
				return false
			}
			seen.Insert(element)
		}
		if !d.addChild(element, rules.ElementType, value) {
			return false
		}
	}
	return true
}

// elementOf returns the path element of an element of a set or keyed list.
func elementOf(rules *smd.List, content any) (pathElement fieldpath.PathElement, ok bool) {
	if len(rules.Keys) == 0 {
		if !matchesScalar(smd.Untyped, content) {
			return pathElement, false
		}
		scalar := value.NewValueInterface(content)
		return fieldpath.PathElement{Value: &scalar}, true
	}
	members, ok := content.(map[string]any)
	if !ok {
		return pathElement, false
	}
	keys := make(value.FieldList, 0, len(rules.Keys))
	for _, name := range rules.Keys {
		content, has := members[name]
		if !has || !matchesScalar(smd.Untyped, content) {
			return pathElement, false
		}
		keys = append(keys, value.Field{Name: name, Value: value.NewValueInterface(content)})
	}
	keys.Sort()
	return fieldpath.PathElement{Key: &keys}, true
}
