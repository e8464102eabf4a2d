package apply

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v4/value"

	"binnacle/services/apiserver/internal/registry"
)

// changes holds the fields in which two objects differ.
type changes struct {
	// set holds the fields that the second object adds or changes, removed the fields that it
	// lacks.
	set, removed *fieldpath.Set
}

// filteredBy returns the changes without the fields that a filter removes. f may be nil.
func (c *changes) filteredBy(f fieldpath.Filter) *changes {
	if f == nil {
		return c
	}
	return &changes{set: f.Filter(c.set), removed: f.Filter(c.removed)}
}

// differences compares two objects of the kind. live may be nil.
func (v *view) differences(live, obj registry.Object) (*changes, error) {
	s := v.shape()
	if s == nil {
		if ch, ok := v.documentDifferences(live, obj); ok {
			return ch, nil
		}
	}
	if live == nil {
		live = v.kind.New().(registry.Object)
	}
	if s == nil {
		return v.typedDifferences(live, obj)
	}
	c := newComparer()
	c.compareObjects(s, reflect.ValueOf(live).Elem(), reflect.ValueOf(obj).Elem())
	return c.changes(), errors.Join(c.errs...)
}

// comparer collects the differences between two values.
type comparer struct {
	set, removed pathSet
	path         fieldpath.Path
	errs         []error
}

// pathSet is a fieldpath.Set built in path order. nodes holds the parts of the set below the
// prefixes of the path, created on demand.
type pathSet struct {
	root  *fieldpath.Set
	nodes []*fieldpath.Set
}

// insert adds the path.
func (t *pathSet) insert(path fieldpath.Path) {
	last := len(path) - 1
	for len(t.nodes) < last {
		t.nodes = append(t.nodes, t.setBelow(len(t.nodes)).Children.Descend(path[len(t.nodes)]))
	}
	t.setBelow(last).Members.Insert(path[last])
}

// setBelow returns the part of the set below the first n elements of the path.
func (t *pathSet) setBelow(n int) *fieldpath.Set {
	if n == 0 {
		return t.root
	}
	return t.nodes[n-1]
}

// truncate drops the nodes below the first n elements of the path.
func (t *pathSet) truncate(n int) {
	if len(t.nodes) > n {
		t.nodes = t.nodes[:n]
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

// pushElement appends an element to the path.
func (c *comparer) pushElement(e fieldpath.PathElement) { c.path = append(c.path, e) }

// popElement removes the last element of the path.
func (c *comparer) popElement() {
	c.path = c.path[:len(c.path)-1]
	c.set.truncate(len(c.path))
	c.removed.truncate(len(c.path))
}

// compareObjects compares two objects, except for the fields that managedFields never contain.
func (c *comparer) compareObjects(s *fieldSchema, a, b reflect.Value) {
	for i := range s.fields {
		f := &s.fields[i]
		switch f.name {
		case "apiVersion", "kind":
		case "metadata":
			x, _ := f.valueIn(a)
			y, _ := f.valueIn(b)
			c.pushElement(fieldpath.PathElement{FieldName: &f.name})
			for j := range f.fields {
				if g := &f.fields[j]; !serverOwned(g.name) {
					c.compareField(g, x, y)
				}
			}
			c.popElement()
		default:
			c.compareField(f, a, b)
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

// compareField compares one field of two structs. Either may be null.
func (c *comparer) compareField(f *fieldShape, a, b reflect.Value) {
	var x, y reflect.Value
	var hasX, hasY bool
	if a.IsValid() {
		x, hasX = f.valueIn(a)
	}
	if b.IsValid() {
		y, hasY = f.valueIn(b)
	}
	if !hasX && !hasY {
		return
	}
	c.pushElement(fieldpath.PathElement{FieldName: &f.name})
	c.compareValues(f.fieldSchema, x, y, hasX, hasY)
	c.popElement()
}

// compareValues compares two values. Each may be absent, or null, which is present but not valid.
// At least one is present.
func (c *comparer) compareValues(s *fieldSchema, a, b reflect.Value, hasA, hasB bool) {
	switch {
	case s.kind == foreignShape:
		c.compareEncodings(s, a, b, hasA, hasB)
		return
	case s.atomic:
		c.compareLeaves(s, a, b, hasA, hasB)
		return
	case a.IsValid() && b.IsValid():
	case s.isEmpty(a) && s.isEmpty(b):
		c.compareLeaves(s, a, b, hasA, hasB)
		return
	}
	switch s.kind {
	case structShape:
		for i := range s.fields {
			c.compareField(&s.fields[i], a, b)
		}
	case mapShape:
		if s.isEmpty(a) && s.isEmpty(b) {
			return
		}
		c.compareMaps(s, a, b)
	case listShape:
		if s.isEmpty(a) && s.isEmpty(b) {
			return
		}
		c.compareLists(s, a, b)
	}
	if !hasA {
		c.set.insert(c.path)
	} else if !hasB {
		c.removed.insert(c.path)
	}
}

// compareLeaves compares two values that have no owners below them.
func (c *comparer) compareLeaves(s *fieldSchema, a, b reflect.Value, hasA, hasB bool) {
	switch {
	case !hasA:
		c.set.insert(c.path)
	case !hasB:
		c.removed.insert(c.path)
	case !equal(s, a, b, nullEqualsNull):
		c.set.insert(c.path)
	}
}

// isEmpty reports whether a value is null or empty.
func (s *fieldSchema) isEmpty(v reflect.Value) bool {
	if !v.IsValid() {
		return true
	}
	if s.kind != structShape {
		return v.Len() == 0
	}
	for i := range s.fields {
		if _, has := s.fields[i].valueIn(v); has {
			return false
		}
	}
	return true
}

// compareMaps compares two maps. b may be invalid.
func (c *comparer) compareMaps(s *fieldSchema, a, b reflect.Value) {
	for _, key := range keysOf(a) {
		other := reflect.Value{}
		if b.IsValid() {
			other = b.MapIndex(key)
		}
		x := dereference(a.MapIndex(key))
		if other.IsValid() && s.elem.atomic && equal(s.elem, x, dereference(other), nullEqualsNull) {
			continue
		}
		c.compareEntries(s, key.String(), x, other, true)
	}
	for _, key := range keysOf(b) {
		if a.IsValid() && a.MapIndex(key).IsValid() {
			continue
		}
		c.compareEntries(s, key.String(), reflect.Value{}, b.MapIndex(key), false)
	}
}

// keysOf returns the keys of a map in order. Insertion into a set is fast in order.
func keysOf(m reflect.Value) []reflect.Value {
	if !m.IsValid() {
		return nil
	}
	keys := m.MapKeys()
	slices.SortFunc(keys, func(x, y reflect.Value) int { return strings.Compare(x.String(), y.String()) })
	return keys
}

// compareEntries compares the values of two maps at one key. b is invalid if the second map lacks
// the key.
func (c *comparer) compareEntries(s *fieldSchema, key string, a, b reflect.Value, hasA bool) {
	hasB := b.IsValid()
	if hasB {
		b = dereference(b)
	}
	c.pushElement(fieldpath.PathElement{FieldName: &key})
	c.compareValues(s.elem, a, b, hasA, hasB)
	c.popElement()
}

// element is an element of an associative list in one of two lists, identified by its key or value.
type element struct {
	path fieldpath.PathElement
	v    reflect.Value
	inB  bool
}

// compareLists compares two lists, whose items are identified by keys or by value. Either may be
// invalid.
func (c *comparer) compareLists(s *fieldSchema, a, b reflect.Value) {
	if a.IsValid() && b.IsValid() && equal(s, a, b, nullEqualsNull) {
		return
	}
	all := make([]element, 0, listLength(a)+listLength(b))
	collect := func(v reflect.Value, inB bool) {
		p, err := s.pathElement(v)
		if err != nil {
			if len(c.errs) == 0 { // one error is enough, and there may be many
				c.errs = append(c.errs, fmt.Errorf("%s: %w", c.path, err))
			}
			return
		}
		all = append(all, element{p, v, inB})
	}
	eachElement(a, func(v reflect.Value) { collect(v, false) })
	eachElement(b, func(v reflect.Value) { collect(v, true) })
	// Insertion into a set is fast in path order.
	slices.SortStableFunc(all, func(x, y element) int { return x.path.Compare(y.path) })
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].path.Equals(all[0].path) {
			n++
		}
		inA := 0
		for inA < n && !all[inA].inB {
			inA++
		}
		c.pushElement(all[0].path)
		c.compareElements(s, all[:inA], all[inA:n])
		c.popElement()
		all = all[n:]
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

// compareElements compares the elements of two lists at one path. Duplicates are compared as a
// whole.
func (c *comparer) compareElements(s *fieldSchema, a, b []element) {
	switch {
	case len(a) <= 1 && len(b) <= 1:
		var x, y reflect.Value
		if len(a) == 1 {
			x = a[0].v
		}
		if len(b) == 1 {
			y = b[0].v
		}
		c.compareValues(s.elem, x, y, len(a) == 1, len(b) == 1)
	case len(a) > 1 && len(b) > 1:
		if !slices.EqualFunc(a, b, func(x, y element) bool { return equal(s.elem, x.v, y.v, nullEqualsNull) }) {
			c.set.insert(c.path)
		}
	case len(a) > 1:
		if len(b) == 1 {
			c.compareValues(s.elem, reflect.Value{}, b[0].v, false, true)
		}
		c.removed.insert(c.path)
	default:
		if len(a) == 1 {
			c.compareValues(s.elem, a[0].v, reflect.Value{}, true, false)
		}
		c.set.insert(c.path)
	}
}

// pathElement returns the path element that identifies an element of a list.
func (s *fieldSchema) pathElement(v reflect.Value) (fieldpath.PathElement, error) {
	if !v.IsValid() {
		return fieldpath.PathElement{}, errors.New("a set or keyed list has a null element")
	}
	if len(s.keys) == 0 {
		x := scalarValue(v)
		return fieldpath.PathElement{Value: &x}, nil
	}
	keys := make(value.FieldList, 0, len(s.keys))
	for _, k := range s.keys {
		f, has := k.valueIn(v)
		switch {
		case has && f.IsValid():
			keys = append(keys, value.Field{Name: k.name, Value: scalarValue(f)})
		case k.defaultValue != nil:
			keys = append(keys, value.Field{Name: k.name, Value: k.defaultValue})
		default:
			return fieldpath.PathElement{}, fmt.Errorf("list element lacks key field %q", k.name)
		}
	}
	keys.Sort()
	return fieldpath.PathElement{Key: &keys}, nil
}

// scalarValue returns a scalar as a value of a path element.
func scalarValue(v reflect.Value) value.Value {
	switch {
	case v.CanInt():
		return value.NewValueInterface(v.Int())
	case v.CanUint():
		return value.NewValueInterface(int64(v.Uint()))
	case v.CanFloat():
		return value.NewValueInterface(v.Float())
	case v.Kind() == reflect.Bool:
		return value.NewValueInterface(v.Bool())
	case v.Kind() == reflect.String:
		return value.NewValueInterface(v.String())
	}
	return value.NewValueInterface(decodedJSON(v))
}
