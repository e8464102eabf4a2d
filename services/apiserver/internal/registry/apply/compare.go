package apply

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"

	"binnacle/services/apiserver/internal/registry"
)

// changes holds the fields in which two objects differ: the live object and its successor.
type changes struct {
	set     *fieldpath.Set // fields that the successor adds or changes
	removed *fieldpath.Set // fields that the successor lacks
}

// filteredBy returns the changes without the fields that f removes. f may be nil.
func (c *changes) filteredBy(f fieldpath.Filter) *changes {
	if f == nil {
		return c
	}
	return &changes{set: f.Filter(c.set), removed: f.Filter(c.removed)}
}

// differences compares two objects of the kind. live may be nil. Objects with a Go type are compared
// by reflection. Documents are compared by documentDifferences or, if it does not support them, by
// the merge library.
func (v *view) differences(live, obj registry.Object) (*changes, error) {
	shape := v.shape()
	if shape == nil {
		if ch, ok := v.documentDifferences(live, obj); ok {
			return ch, nil
		}
	}
	if live == nil {
		live = v.kind.New().(registry.Object)
	}
	if shape == nil {
		return v.typedDifferences(live, obj)
	}
	c := newComparer()
	c.compareObjects(shape, reflect.ValueOf(live).Elem(), reflect.ValueOf(obj).Elem())
	return c.changes(), errors.Join(c.errs...)
}

// comparer walks through two values a (live) and b (its successor) and records the paths at which
// they differ. Its methods distinguish three states of a value: has is false for an absent value; has
// is true and the reflect.Value is invalid for null; both are valid for a set value. A value that is
// absent or null has no parts.
type comparer struct {
	set, removed pathSet
	path         fieldpath.Path // of the values that are being compared
	errs         []error
}

// pathSet is a fieldpath.Set for paths that are inserted in order. It caches the parts of the set on
// the current path, so that an insertion does not start at the root.
type pathSet struct {
	root *fieldpath.Set
	// nodes[i] is the part of the set below the first i+1 elements of the current path. Missing
	// nodes are created on demand.
	nodes []*fieldpath.Set
}

func (s *pathSet) insert(path fieldpath.Path) {
	last := len(path) - 1
	for len(s.nodes) < last {
		s.nodes = append(s.nodes, s.setBelow(len(s.nodes)).Children.Descend(path[len(s.nodes)]))
	}
	s.setBelow(last).Members.Insert(path[last])
}

// setBelow returns the part of the set below the first n elements of the path.
func (s *pathSet) setBelow(n int) *fieldpath.Set {
	if n == 0 {
		return s.root
	}
	return s.nodes[n-1]
}

// truncate shortens the current path to n elements.
func (s *pathSet) truncate(n int) {
	if len(s.nodes) > n {
		s.nodes = s.nodes[:n]
	}
}

func newComparer() *comparer {
	return &comparer{
		set:     pathSet{root: fieldpath.NewSet()},
		removed: pathSet{root: fieldpath.NewSet()},
		path:    make(fieldpath.Path, 0, 16),
	}
}

func (c *comparer) changes() *changes { return &changes{set: c.set.root, removed: c.removed.root} }

func (c *comparer) pushElement(e fieldpath.PathElement) { c.path = append(c.path, e) }

// popElement removes the last element of the path.
func (c *comparer) popElement() {
	c.path = c.path[:len(c.path)-1]
	c.set.truncate(len(c.path))
	c.removed.truncate(len(c.path))
}

// compareObjects compares two objects, except for the fields that have no owner.
func (c *comparer) compareObjects(shape *valueShape, a, b reflect.Value) {
	for i := range shape.fields {
		field := &shape.fields[i]
		switch field.name {
		case "apiVersion", "kind":
		case "metadata":
			metaA, _ := field.valueIn(a)
			metaB, _ := field.valueIn(b)
			c.pushElement(fieldpath.PathElement{FieldName: &field.name})
			for j := range field.fields {
				if metaField := &field.fields[j]; !serverOwned(metaField.name) {
					c.compareField(metaField, metaA, metaB)
				}
			}
			c.popElement()
		default:
			c.compareField(field, a, b)
		}
	}
}

// serverOwned reports whether a metadata field has no owner because the server sets it.
func serverOwned(name string) bool {
	switch name {
	case "name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields", "resourceVersion":
		return true
	}
	return false
}

// compareField compares one field of two structs. Either struct may be invalid.
func (c *comparer) compareField(field *fieldShape, a, b reflect.Value) {
	var fieldA, fieldB reflect.Value
	var hasA, hasB bool
	if a.IsValid() {
		fieldA, hasA = field.valueIn(a)
	}
	if b.IsValid() {
		fieldB, hasB = field.valueIn(b)
	}
	if !hasA && !hasB {
		return
	}
	c.pushElement(fieldpath.PathElement{FieldName: &field.name})
	c.compareValues(field.valueShape, fieldA, fieldB, hasA, hasB)
	c.popElement()
}

// compareValues compares two values. At least one of them is present.
func (c *comparer) compareValues(shape *valueShape, a, b reflect.Value, hasA, hasB bool) {
	// 1. Compare values without parts, and values that are compared in another way.
	switch {
	case shape.kind == foreignShape:
		c.compareEncodings(shape, a, b, hasA, hasB)
		return
	case shape.atomic:
		c.compareLeaves(shape, a, b, hasA, hasB)
		return
	}
	bothEmpty := shape.isEmpty(a) && shape.isEmpty(b) // only for structs, maps and lists
	if bothEmpty && !(a.IsValid() && b.IsValid()) {
		c.compareLeaves(shape, a, b, hasA, hasB)
		return
	}

	// 2. Compare the parts.
	switch shape.kind {
	case structShape:
		for i := range shape.fields {
			c.compareField(&shape.fields[i], a, b)
		}
	case mapShape:
		if bothEmpty {
			return
		}
		c.compareMaps(shape, a, b)
	case listShape:
		if bothEmpty {
			return
		}
		c.compareLists(shape, a, b)
	}

	// 3. A value that only one side has is itself a change.
	if !hasA {
		c.set.insert(c.path)
	} else if !hasB {
		c.removed.insert(c.path)
	}
}

// compareLeaves compares two values whose parts have no owners.
func (c *comparer) compareLeaves(shape *valueShape, a, b reflect.Value, hasA, hasB bool) {
	switch {
	case !hasA:
		c.set.insert(c.path)
	case !hasB:
		c.removed.insert(c.path)
	case !equal(shape, a, b, nullEqualsNull):
		c.set.insert(c.path)
	}
}

// isEmpty reports whether a value is null or empty.
func (s *valueShape) isEmpty(value reflect.Value) bool {
	if !value.IsValid() {
		return true
	}
	if s.kind != structShape {
		return value.Len() == 0
	}
	for i := range s.fields {
		if _, has := s.fields[i].valueIn(value); has {
			return false
		}
	}
	return true
}

// compareMaps compares two maps. Either may be invalid.
func (c *comparer) compareMaps(shape *valueShape, a, b reflect.Value) {
	for _, key := range keysOf(a) {
		valueA := dereference(a.MapIndex(key))
		var entryB reflect.Value // invalid if b lacks the key
		if b.IsValid() {
			entryB = b.MapIndex(key)
		}
		if entryB.IsValid() && shape.elem.atomic && equal(shape.elem, valueA, dereference(entryB), nullEqualsNull) {
			continue // avoid work on the path for the usual case
		}
		c.compareEntries(shape, key.String(), valueA, entryB, true)
	}
	for _, key := range keysOf(b) {
		if a.IsValid() && a.MapIndex(key).IsValid() {
			continue
		}
		c.compareEntries(shape, key.String(), reflect.Value{}, b.MapIndex(key), false)
	}
}

// keysOf returns the sorted keys of a map, because insertion into a set is fast in path order.
func keysOf(m reflect.Value) []reflect.Value {
	if !m.IsValid() {
		return nil
	}
	keys := m.MapKeys()
	slices.SortFunc(keys, func(x, y reflect.Value) int { return strings.Compare(x.String(), y.String()) })
	return keys
}

// compareEntries compares the values of two maps at one key. entryB is invalid if the second map
// lacks the key.
func (c *comparer) compareEntries(shape *valueShape, key string, valueA, entryB reflect.Value, hasA bool) {
	hasB := entryB.IsValid()
	valueB := entryB
	if hasB {
		valueB = dereference(entryB)
	}
	c.pushElement(fieldpath.PathElement{FieldName: &key})
	c.compareValues(shape.elem, valueA, valueB, hasA, hasB)
	c.popElement()
}

// element is an element of one of two associative lists, a or b.
type element struct {
	path     fieldpath.PathElement // identifies the element by its key or value
	value    reflect.Value
	inSecond bool
}

// compareLists compares two lists whose elements are identified by keys or by value. Either may be
// invalid.
func (c *comparer) compareLists(shape *valueShape, a, b reflect.Value) {
	if a.IsValid() && b.IsValid() && equal(shape, a, b, nullEqualsNull) {
		return
	}

	// 1. Collect the elements of both lists.
	elements := make([]element, 0, listLength(a)+listLength(b))
	collect := func(value reflect.Value, inB bool) {
		pathElement, err := shape.pathElement(value)
		if err != nil {
			if len(c.errs) == 0 { // one error is enough, and there may be many
				c.errs = append(c.errs, fmt.Errorf("%s: %w", c.path, err))
			}
			return
		}
		elements = append(elements, element{pathElement, value, inB})
	}
	eachElement(a, func(value reflect.Value) { collect(value, false) })
	eachElement(b, func(value reflect.Value) { collect(value, true) })

	// 2. Sort them by path, because insertion into a set is fast in path order. The elements of a
	// remain before those of b.
	slices.SortStableFunc(elements, func(x, y element) int { return x.path.Compare(y.path) })

	// 3. Compare the elements at each path.
	for len(elements) > 0 {
		atPath := 1
		for atPath < len(elements) && elements[atPath].path.Equals(elements[0].path) {
			atPath++
		}
		fromA := 0
		for fromA < atPath && !elements[fromA].inSecond {
			fromA++
		}
		c.pushElement(elements[0].path)
		c.compareElements(shape, elements[:fromA], elements[fromA:atPath])
		c.popElement()
		elements = elements[atPath:]
	}
}

// listLength returns the length of a list, which may be absent.
func listLength(list reflect.Value) int {
	if !list.IsValid() {
		return 0
	}
	return list.Len()
}

// eachElement calls f for the elements of a list, which may be absent.
func eachElement(list reflect.Value, f func(reflect.Value)) {
	if !list.IsValid() {
		return
	}
	for i := range list.Len() {
		f(dereference(list.Index(i)))
	}
}

// compareElements compares the elements of two lists at one path. Usually each list has at most one.
// As in the merge library, duplicates have one owner as a whole.
func (c *comparer) compareElements(shape *valueShape, a, b []element) {
	hasDuplicatesA, hasDuplicatesB := len(a) > 1, len(b) > 1
	switch {
	case !hasDuplicatesA && !hasDuplicatesB:
		var valueA, valueB reflect.Value
		if len(a) == 1 {
			valueA = a[0].value
		}
		if len(b) == 1 {
			valueB = b[0].value
		}
		c.compareValues(shape.elem, valueA, valueB, len(a) == 1, len(b) == 1)
	case hasDuplicatesA && hasDuplicatesB:
		if !slices.EqualFunc(a, b, func(x, y element) bool { return equal(shape.elem, x.value, y.value, nullEqualsNull) }) {
			c.set.insert(c.path)
		}
	case hasDuplicatesA:
		if len(b) == 1 { // it replaces the duplicates
			c.compareValues(shape.elem, reflect.Value{}, b[0].value, false, true)
		}
		c.removed.insert(c.path)
	default:
		if len(a) == 1 { // the duplicates replace it
			c.compareValues(shape.elem, a[0].value, reflect.Value{}, true, false)
		}
		c.set.insert(c.path)
	}
}
