package apply

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
	smd "sigs.k8s.io/structured-merge-diff/v4/schema"
	"sigs.k8s.io/structured-merge-diff/v4/value"

	"binnacle/services/apiserver/internal/registry"
)

// creation is what a new document sets: all that it has. False is for what is unusual in
// it, such as what does not fit its rules: it is compared with an empty one then, which
// tells the same, or what is wrong.
func (v *view) creation(obj registry.Object) (*changes, bool) {
	u, ok := obj.(runtime.Unstructured)
	if !ok {
		return nil, false
	}
	rules := v.typed()
	c := creations.Get().(*creator)
	defer c.free()
	c.schema, c.set.root = rules.Schema, fieldpath.NewSet()
	if !c.add(rules.TypeRef, u.UnstructuredContent()) {
		return nil, false
	}
	return &changes{set: c.set.root, removed: fieldpath.NewSet()}, true
}

var creations = sync.Pool{New: func() any { return &creator{path: make(fieldpath.Path, 0, 16)} }}

// creator gathers the fields of a document.
type creator struct {
	schema *smd.Schema
	set    trail
	path   fieldpath.Path
	// whole tells that the path is within a value that belongs to somebody as a whole.
	whole bool
	// keys are the names of objects that are gone through, one after the other.
	keys []string
}

func (c *creator) free() {
	clear(c.path[:cap(c.path)])
	clear(c.keys[:cap(c.keys)])
	clear(c.set.nodes[:cap(c.set.nodes)])
	*c = creator{path: c.path[:0], keys: c.keys[:0], set: trail{nodes: c.set.nodes[:0]}}
	creations.Put(c)
}

// add takes a value that stands at the path. It is false for what is unusual.
func (c *creator) add(ref smd.TypeRef, v any) bool {
	atom, ok := c.schema.Resolve(ref)
	if !ok {
		return false
	}
	switch v := v.(type) {
	case nil:
		ok = atom.Map != nil || atom.List != nil || atom.Scalar != nil
	case map[string]any:
		ok = atom.Map != nil && c.object(atom.Map, v)
	case []any:
		ok = atom.List != nil && c.list(atom.List, v)
	default:
		ok = atom.Scalar != nil && fits(*atom.Scalar, v)
	}
	if ok && !c.whole && len(c.path) > 0 {
		c.set.insert(c.path)
	}
	return ok
}

// fits tells whether a scalar is of its type.
func fits(want smd.Scalar, v any) bool {
	switch v.(type) {
	case string:
		return want == smd.String || want == smd.Untyped
	case bool:
		return want == smd.Boolean || want == smd.Untyped
	case int64, float64:
		return want == smd.Numeric || want == smd.Untyped
	}
	return false
}

// within goes on below the path.
func (c *creator) within(e fieldpath.PathElement, ref smd.TypeRef, v any) bool {
	if c.whole { // nothing is noted of it
		return c.add(ref, v)
	}
	c.path = append(c.path, e)
	ok := c.add(ref, v)
	c.path = c.path[:len(c.path)-1]
	c.set.back(len(c.path))
	return ok
}

func (c *creator) object(rules *smd.Map, m map[string]any) bool {
	was := c.whole
	c.whole = was || rules.ElementRelationship == smd.Atomic
	defer func() { c.whole = was }()
	if !c.whole && len(m) > MaxMembers {
		return false
	}
	begin := len(c.keys)
	for name := range m {
		c.keys = append(c.keys, name)
	}
	end := len(c.keys)
	slices.Sort(c.keys[begin:end]) // sets are filled from the first to the last
	for i := begin; i < end; i++ {
		name := c.keys[i]
		ref := rules.ElementType
		if f, ok := rules.FindField(name); ok {
			ref = f.Type
		} else if ref == (smd.TypeRef{}) {
			return false
		}
		if !c.within(fieldpath.PathElement{FieldName: &name}, ref, m[name]) {
			return false
		}
	}
	c.keys = c.keys[:begin]
	return true
}

func (c *creator) list(rules *smd.List, l []any) bool {
	was := c.whole
	c.whole = was || rules.ElementRelationship == smd.Atomic
	defer func() { c.whole = was }()
	keyed := rules.ElementRelationship == smd.Associative
	if keyed && len(l) > MaxMembers {
		return false
	}
	var seen fieldpath.PathElementSet
	for _, v := range l {
		var e fieldpath.PathElement
		if keyed {
			var ok bool
			if e, ok = elementOf(rules, v); !ok || !c.whole && seen.Has(e) {
				return false
			}
			seen.Insert(e)
		}
		if !c.within(e, rules.ElementType, v) {
			return false
		}
	}
	return true
}

// elementOf is how an element of a list is called that is a set or has keys.
func elementOf(rules *smd.List, v any) (e fieldpath.PathElement, ok bool) {
	if len(rules.Keys) == 0 {
		if !fits(smd.Untyped, v) {
			return e, false
		}
		scalar := value.NewValueInterface(v)
		return fieldpath.PathElement{Value: &scalar}, true
	}
	m, ok := v.(map[string]any)
	if !ok {
		return e, false
	}
	keys := make(value.FieldList, 0, len(rules.Keys))
	for _, name := range rules.Keys {
		v, has := m[name]
		if !has || !fits(smd.Untyped, v) {
			return e, false
		}
		keys = append(keys, value.Field{Name: name, Value: value.NewValueInterface(v)})
	}
	keys.Sort()
	return fieldpath.PathElement{Key: &keys}, true
}
