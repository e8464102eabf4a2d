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

func (c *changes) filtered(f fieldpath.Filter) *changes {
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
	c.object(s, reflect.ValueOf(live).Elem(), reflect.ValueOf(obj).Elem())
	return c.changes(), errors.Join(c.errs...)
}

// comparer collects the differences between two values.
type comparer struct {
	set, removed pathSet
	path         fieldpath.Path
	errs         []error
}

// pathSet is a fieldpath.Set built in path order. nodes holds the parts of the set below the prefixes
// of the path, created on demand.
type pathSet struct {
	root  *fieldpath.Set
	nodes []*fieldpath.Set
}

// insert adds the path.
func (t *pathSet) insert(path fieldpath.Path) {
	last := len(path) - 1
	for len(t.nodes) < last {
		t.nodes = append(t.nodes, t.node(len(t.nodes)).Children.Descend(path[len(t.nodes)]))
	}
	t.node(last).Members.Insert(path[last])
}

// node returns the part of the set below the first n elements of the path.
func (t *pathSet) node(n int) *fieldpath.Set {
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
	return &comparer{set: pathSet{root: fieldpath.NewSet()}, removed: pathSet{root: fieldpath.NewSet()}, path: make(fieldpath.Path, 0, 16)}
}

func (c *comparer) changes() *changes { return &changes{set: c.set.root, removed: c.removed.root} }

func (c *comparer) push(e fieldpath.PathElement) { c.path = append(c.path, e) }

func (c *comparer) pop() {
	c.path = c.path[:len(c.path)-1]
	c.set.truncate(len(c.path))
	c.removed.truncate(len(c.path))
}

// object compares two objects, except for the fields that managedFields never contain.
func (c *comparer) object(s *fieldSchema, a, b reflect.Value) {
	for i := range s.fields {
		f := &s.fields[i]
		switch f.name {
		case "apiVersion", "kind":
		case "metadata":
			x, _ := f.get(a)
			y, _ := f.get(b)
			c.push(fieldpath.PathElement{FieldName: &f.name})
			for j := range f.fields {
				if g := &f.fields[j]; !serverOwned(g.name) {
					c.field(g, x, y)
				}
			}
			c.pop()
		default:
			c.field(f, a, b)
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

// field compares one field of two structs. Either may be null.
func (c *comparer) field(f *fieldShape, a, b reflect.Value) {
	var x, y reflect.Value
	var hasX, hasY bool
	if a.IsValid() {
		x, hasX = f.get(a)
	}
	if b.IsValid() {
		y, hasY = f.get(b)
	}
	if !hasX && !hasY {
		return
	}
	c.push(fieldpath.PathElement{FieldName: &f.name})
	c.value(f.fieldSchema, x, y, hasX, hasY)
	c.pop()
}

// value compares two values. Each may be absent, or null, which is present but not valid. At least
// one is present.
func (c *comparer) value(s *fieldSchema, a, b reflect.Value, hasA, hasB bool) {
	switch {
	case s.kind == foreignShape:
		c.compareEncodings(s, a, b, hasA, hasB)
		return
	case s.atomic:
		c.leaf(s, a, b, hasA, hasB)
		return
	case a.IsValid() && b.IsValid():
	case s.isEmpty(a) && s.isEmpty(b):
		c.leaf(s, a, b, hasA, hasB)
		return
	}
	switch s.kind {
	case structShape:
		for i := range s.fields {
			c.field(&s.fields[i], a, b)
		}
	case mapShape:
		if s.isEmpty(a) && s.isEmpty(b) {
			return
		}
		c.maps(s, a, b)
	case listShape:
		if s.isEmpty(a) && s.isEmpty(b) {
			return
		}
		c.lists(s, a, b)
	}
	if !hasA {
		c.set.insert(c.path)
	} else if !hasB {
		c.removed.insert(c.path)
	}
}

// leaf compares two values that have no owners below them.
func (c *comparer) leaf(s *fieldSchema, a, b reflect.Value, hasA, hasB bool) {
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
		if _, has := s.fields[i].get(v); has {
			return false
		}
	}
	return true
}

// maps compares two maps. b may be invalid.
func (c *comparer) maps(s *fieldSchema, a, b reflect.Value) {
	for _, key := range keysOf(a) {
		other := reflect.Value{}
		if b.IsValid() {
			other = b.MapIndex(key)
		}
		x := indirect(a.MapIndex(key))
		if other.IsValid() && s.elem.atomic && equal(s.elem, x, indirect(other), nullEqualsNull) {
			continue
		}
		c.item(s, key.String(), x, other, true)
	}
	for _, key := range keysOf(b) {
		if a.IsValid() && a.MapIndex(key).IsValid() {
			continue
		}
		c.item(s, key.String(), reflect.Value{}, b.MapIndex(key), false)
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

// item compares the values of two maps at one key. b is invalid if the second map lacks the key.
func (c *comparer) item(s *fieldSchema, key string, a, b reflect.Value, hasA bool) {
	hasB := b.IsValid()
	if hasB {
		b = indirect(b)
	}
	c.push(fieldpath.PathElement{FieldName: &key})
	c.value(s.elem, a, b, hasA, hasB)
	c.pop()
}

// element is an element of an associative list in one of two lists, identified by its key or value.
type element struct {
	path fieldpath.PathElement
	v    reflect.Value
	inB  bool
}

// lists compares two lists, whose items are identified by keys or by value. Either may be invalid.
func (c *comparer) lists(s *fieldSchema, a, b reflect.Value) {
	if a.IsValid() && b.IsValid() && equal(s, a, b, nullEqualsNull) {
		return
	}
	all := make([]element, 0, length(a)+length(b))
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
	each(a, func(v reflect.Value) { collect(v, false) })
	each(b, func(v reflect.Value) { collect(v, true) })
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
		c.push(all[0].path)
		c.elements(s, all[:inA], all[inA:n])
		c.pop()
		all = all[n:]
	}
}

// length returns the length of a list, which may be absent.
func length(list reflect.Value) int {
	if !list.IsValid() {
		return 0
	}
	return list.Len()
}

// each calls f for the elements of a list, which may be absent.
func each(list reflect.Value, f func(reflect.Value)) {
	if !list.IsValid() {
		return
	}
	for i := range list.Len() {
		f(indirect(list.Index(i)))
	}
}

// elements compares the elements of two lists at one path. Duplicates are compared as a whole.
func (c *comparer) elements(s *fieldSchema, a, b []element) {
	switch {
	case len(a) <= 1 && len(b) <= 1:
		var x, y reflect.Value
		if len(a) == 1 {
			x = a[0].v
		}
		if len(b) == 1 {
			y = b[0].v
		}
		c.value(s.elem, x, y, len(a) == 1, len(b) == 1)
	case len(a) > 1 && len(b) > 1:
		if !slices.EqualFunc(a, b, func(x, y element) bool { return equal(s.elem, x.v, y.v, nullEqualsNull) }) {
			c.set.insert(c.path)
		}
	case len(a) > 1:
		if len(b) == 1 {
			c.value(s.elem, reflect.Value{}, b[0].v, false, true)
		}
		c.removed.insert(c.path)
	default:
		if len(a) == 1 {
			c.value(s.elem, a[0].v, reflect.Value{}, true, false)
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
		f, has := k.get(v)
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
	return value.NewValueInterface(encoded(v))
}
