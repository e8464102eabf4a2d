package schema

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/json/tape"
)

// walker walks a document along a schema for one kind of check.
type walker struct {
	program *Program
	doc     *tape.Doc
	base    *field.Path
	steps   []step
	errs    field.ErrorList
	size    int // of errs, in bytes
}

// mayReport reports whether to format another error.
func (w *walker) mayReport() bool { return len(w.errs) < maxErrors && w.size < maxErrorBytes }

func (w *walker) put(e *field.Error) {
	w.errs = append(w.errs, e)
	w.size += errorKeyOf(e).size()
}

// down visits the members or items of a value for whose nodes want returns true.
func (w *walker) down(n *node, v tape.Ref, want func(*node) bool, visit func(at Place, v tape.Ref)) {
	d := w.doc
	switch d.Kind(v) {
	case tape.Array:
		if n.items == nowhere || !want(&w.program.nodes[n.items]) {
			return
		}
		index := int32(0)
		for i, end := d.First(v), d.Next(v); i < end; i = d.Next(i) {
			w.visit(step{kind: stepIndex, index: index}, n.items, i, visit)
			index++
		}
	case tape.Object:
		next := 0
		for k, end := d.First(v), d.Next(v); k < end; k = d.Next(k + 1) {
			at, kind := n.values, stepValue
			if i := n.find(d, k, next); i >= 0 {
				next, at, kind = i+1, n.props[i].at, stepProp
			}
			if at != nowhere && want(&w.program.nodes[at]) {
				w.visit(step{kind: kind, key: k}, at, k+1, visit)
			}
		}
	}
}

func (w *walker) visit(s step, at Place, v tape.Ref, visit func(at Place, v tape.Ref)) {
	w.steps = append(w.steps, s)
	visit(at, v)
	w.steps = w.steps[:len(w.steps)-1]
}

func (w *walker) path() *field.Path { return fieldPath(w.doc, w.base, w.steps) }

func hasLists(n *node) bool { return n.anyLists }

// lists returns the duplicates in lists of type set and map.
func (p *Program) lists(d *tape.Doc, base *field.Path) field.ErrorList {
	if !p.nodes[root].anyLists {
		return nil
	}
	w := walker{program: p, doc: d, base: base}
	w.list(root, tape.Root)
	return w.errs
}

func (w *walker) list(at Place, v tape.Ref) {
	n := &w.program.nodes[at]
	if w.doc.Kind(v) == tape.Array {
		switch n.list {
		case listSet:
			w.set(v)
		case listMap:
			w.keyed(n, v)
		}
	}
	w.down(n, v, hasLists, w.list)
}

func (w *walker) duplicate(index int, value any) {
	if w.mayReport() {
		w.put(field.Duplicate(w.path().Index(index), value))
	}
}

// set reports each repeated value once.
func (w *walker) set(v tape.Ref) {
	d := w.doc
	if d.Len(v) <= 1 {
		return
	}
	times := make(counts, d.Len(v))
	index := 0
	for i, end := d.First(v), d.Next(v); i < end; i = d.Next(i) {
		if times.again(identity(d, i)) {
			w.duplicate(index, d.Any(i))
		}
		index++
	}
}

// counts counts the occurrences of strings.
type counts map[string]int

func (c counts) again(s string) bool {
	c[s]++
	return c[s] == 2
}

// identity returns a string that is equal for equal values. Scalars are equal only if their types
// are: 1 and 1.0 differ, but not within objects.
func identity(d *tape.Doc, v tape.Ref) string {
	switch d.Kind(v) {
	case tape.Number:
		if _, ok := d.Int(v); !ok {
			return "float " + string(d.AppendCanonical(nil, v))
		}
	case tape.String:
		return `"` + d.String(v)
	}
	return string(d.AppendCanonical(nil, v))
}

// keyed reports items with equal keys.
func (w *walker) keyed(n *node, v tape.Ref) {
	d := w.doc
	index := 0
	for i, end := d.First(v), d.Next(v); i < end; i = d.Next(i) {
		if k := d.Kind(i); k != tape.Object && k != tape.Null {
			if w.mayReport() {
				w.put(field.Invalid(w.path().Index(index), d.Any(i), "must be an object for an array of list-type map"))
			}
			return
		}
		index++
	}
	if d.Len(v) <= 1 {
		return
	}
	times := make(counts, d.Len(v))
	index = 0
	for i, end := d.First(v), d.Next(v); i < end; i = d.Next(i) {
		if times.again(keyIdentity(d, n.keys, i)) {
			w.duplicate(index, keyValues(d, n.keys, i))
		}
		index++
	}
}

func keyIdentity(d *tape.Doc, keys []string, item tape.Ref) string {
	var text []byte
	for _, k := range keys {
		if v := d.Find(item, k); v != tape.None {
			if len(keys) == 1 {
				return "=" + identity(d, v)
			}
			text = append(append(text, '='), d.AppendCanonical(nil, v)...)
		}
		text = append(text, 0)
	}
	return string(text)
}

func keyValues(d *tape.Doc, keys []string, item tape.Ref) map[string]any {
	values := map[string]any{}
	for _, k := range keys {
		if v := d.Find(item, k); v != tape.None {
			values[k] = d.Any(v)
		}
	}
	return values
}
