package schema

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/json/tape"
)

// Comparer finds the old value that corresponds to a new one, and reports whether they are equal in
// the sense of ratcheting. It is not safe for concurrent use.
type Comparer struct {
	program  *Program
	doc, old *tape.Doc
	keyed    map[tape.Ref]map[string]tape.Ref // items of old lists of type map, by their keys
	results  map[comparison]bool
}

// comparison is a pair of a new and an old value. Each invalid value compares all the values around
// it, and each invalid item compares its list. Results are cached so that each pair is compared
// once.
type comparison struct {
	at     NodeIndex
	v, old tape.Ref
}

// NewComparer returns a Comparer of a document with the old one.
func (p *Program) NewComparer(d, old *tape.Doc) *Comparer {
	return &Comparer{program: p, doc: d, old: old}
}

// Equal reports whether a value is unchanged. An object with members that the schema does not
// describe is never equal.
func (c *Comparer) Equal(at NodeIndex, v, old tape.Ref) bool {
	if kind := c.doc.Kind(v); kind != tape.Object && kind != tape.Array {
		return c.equal(at, v, old)
	}
	compared := comparison{at, v, old}
	isEqual, known := c.results[compared]
	if !known {
		isEqual = c.equal(at, v, old)
		if c.results == nil {
			c.results = map[comparison]bool{}
		}
		c.results[compared] = isEqual
	}
	return isEqual
}

// Keyed returns the item of an old list of type map with the same keys as item, or tape.None. Items
// of other lists have no old item.
func (c *Comparer) Keyed(at NodeIndex, old, item tape.Ref) tape.Ref {
	return c.keyedItem(&c.program.nodes[at], old, item)
}

// keyedItem is Keyed for a node.
func (c *Comparer) keyedItem(n *node, old, item tape.Ref) tape.Ref {
	if n.listType != listMap || old == tape.None || c.old.Kind(old) != tape.Array {
		return tape.None
	}
	return c.findByKeys(n, old, item)
}

// findByKeys returns the first old item with the keys of item, or tape.None.
func (c *Comparer) findByKeys(n *node, old, item tape.Ref) tape.Ref {
	if len(n.keys) == 0 {
		return tape.None
	}
	key, ok := scalarKeys(c.doc, n.keys, item)
	if !ok {
		return tape.None
	}
	items, ok := c.keyed[old]
	if !ok {
		items = make(map[string]tape.Ref, c.old.Len(old))
		for i, end := c.old.First(old), c.old.Next(old); i < end; i = c.old.Next(i) {
			k, ok := scalarKeys(c.old, n.keys, i)
			if _, there := items[k]; ok && !there {
				items[k] = i
			}
		}
		if c.keyed == nil {
			c.keyed = map[tape.Ref]map[string]tape.Ref{}
		}
		c.keyed[old] = items
	}
	if before, ok := items[key]; ok {
		return before
	}
	return tape.None
}

// scalarKeys returns a string that is equal for items with equal keys, in the sense of ratcheting.
// It returns false if the item lacks a key or if a key is not a scalar.
func scalarKeys(d *tape.Doc, keys []string, item tape.Ref) (string, bool) {
	if d.Kind(item) != tape.Object {
		return "", false
	}
	var b strings.Builder
	for _, k := range keys {
		v := d.Find(item, k)
		if v == tape.None {
			return "", false
		}
		switch d.Kind(v) {
		case tape.True, tape.False:
			b.Write(d.Text(v))
		case tape.Number:
			if i, ok := d.Int(v); ok {
				fmt.Fprintf(&b, "%d", i)
			} else if len(keys) == 1 {
				fmt.Fprintf(&b, "f%g", d.Float(v))
			} else { // with several keys, Kubernetes compares six digits
				fmt.Fprintf(&b, "%f", d.Float(v))
			}
		case tape.String:
			fmt.Fprintf(&b, "%q", d.String(v))
		default:
			return "", false
		}
		b.WriteByte(0)
	}
	return b.String(), true
}

// equal compares two values like Equal. It does not cache the result, because a value may have many
// values within.
func (c *Comparer) equal(at NodeIndex, v, old tape.Ref) bool {
	kind, oldKind := c.doc.Kind(v), c.old.Kind(old)
	if kind == tape.Object || kind == tape.Array {
		if isEqual, known := c.results[comparison{at, v, old}]; known {
			return isEqual
		}
	}
	switch {
	case kind == tape.Array && oldKind == tape.Array:
		return c.equalLists(&c.program.nodes[at], v, old)
	case kind == tape.Object && oldKind == tape.Object:
		return c.equalObjects(&c.program.nodes[at], v, old)
	}
	return tape.Equal(c.doc, v, c.old, old)
}

// equalLists reports whether two lists are equal. The order of lists of type map does not matter.
func (c *Comparer) equalLists(n *node, v, old tape.Ref) bool {
	if c.doc.Len(v) != c.old.Len(old) {
		return false
	}
	if n.listType != listMap {
		return tape.Equal(c.doc, v, c.old, old)
	}
	for item, end := c.doc.First(v), c.doc.Next(v); item < end; item = c.doc.Next(item) {
		oldItem := c.findByKeys(n, old, item)
		if oldItem == tape.None || n.items == NoNode || !c.equal(n.items, item, oldItem) {
			return false
		}
	}
	return true
}

// equalObjects reports whether two objects have equal members.
func (c *Comparer) equalObjects(n *node, v, old tape.Ref) bool {
	if c.doc.Len(v) != c.old.Len(old) {
		return false
	}
	for k, end := c.doc.First(v), c.doc.Next(v); k < end; k = c.doc.Next(k + 1) {
		at := n.child(c.doc, k)
		if at == NoNode {
			return false
		}
		before := c.old.Find(old, c.doc.String(k))
		if before == tape.None || !c.equal(at, k+1, before) {
			return false
		}
	}
	return true
}

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

// record adds an error.
func (w *walker) record(e *field.Error) {
	w.errs = append(w.errs, e)
	w.size += errorKeyOf(e).size()
}

// visitChildren visits the members or items of a value for whose nodes matches returns true.
func (w *walker) visitChildren(n *node, v tape.Ref, matches func(*node) bool, visit func(at NodeIndex, v tape.Ref)) {
	d := w.doc
	switch d.Kind(v) {
	case tape.Array:
		if n.items == NoNode || !matches(&w.program.nodes[n.items]) {
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
				next = i + 1
				at = n.props[i].node
				kind = stepProp
			}
			if at != NoNode && matches(&w.program.nodes[at]) {
				w.visit(step{kind: kind, key: k}, at, k+1, visit)
			}
		}
	}
}

// visit calls visit for a value with the step to it on the path.
func (w *walker) visit(s step, at NodeIndex, v tape.Ref, visit func(at NodeIndex, v tape.Ref)) {
	w.steps = append(w.steps, s)
	visit(at, v)
	w.steps = w.steps[:len(w.steps)-1]
}

// path returns the path of the current value.
func (w *walker) path() *field.Path { return fieldPath(w.doc, w.base, w.steps) }

// hasSetsOrMaps reports whether a node is or contains a list of type set or map.
func hasSetsOrMaps(n *node) bool { return n.containsSetsOrMaps }

// checkLists returns the duplicates in lists of type set and map.
func (p *Program) checkLists(d *tape.Doc, base *field.Path) field.ErrorList {
	if !p.nodes[Root].containsSetsOrMaps {
		return nil
	}
	w := walker{program: p, doc: d, base: base}
	w.checkListsBelow(Root, tape.Root)
	return w.errs
}

// checkListsBelow checks the lists at and below a value.
func (w *walker) checkListsBelow(at NodeIndex, v tape.Ref) {
	n := &w.program.nodes[at]
	if w.doc.Kind(v) == tape.Array {
		switch n.listType {
		case listSet:
			w.checkSet(v)
		case listMap:
			w.checkKeyedList(n, v)
		}
	}
	w.visitChildren(n, v, hasSetsOrMaps, w.checkListsBelow)
}

// reportDuplicate reports an item that occurs earlier in its list.
func (w *walker) reportDuplicate(index int, value any) {
	if w.mayReport() {
		w.record(field.Duplicate(w.path().Index(index), value))
	}
}

// checkSet reports each repeated value once.
func (w *walker) checkSet(v tape.Ref) {
	d := w.doc
	if d.Len(v) <= 1 {
		return
	}
	times := make(stringCounts, d.Len(v))
	index := 0
	for i, end := d.First(v), d.Next(v); i < end; i = d.Next(i) {
		if times.isSecond(identity(d, i)) {
			w.reportDuplicate(index, d.Any(i))
		}
		index++
	}
}

// stringCounts counts the occurrences of strings.
type stringCounts map[string]int

// isSecond counts s and reports whether it occurs for the second time.
func (c stringCounts) isSecond(s string) bool {
	c[s]++
	return c[s] == 2
}

// identity returns a string that is equal for equal values. Scalars of different types differ: 1
// and 1.0 differ, but not within objects.
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

// checkKeyedList reports items with equal keys.
func (w *walker) checkKeyedList(n *node, v tape.Ref) {
	d := w.doc

	// 1. All items must be objects.
	index := 0
	for i, end := d.First(v), d.Next(v); i < end; i = d.Next(i) {
		if k := d.Kind(i); k != tape.Object && k != tape.Null {
			if w.mayReport() {
				w.record(field.Invalid(w.path().Index(index), d.Any(i), "must be an object for an array of list-type map"))
			}
			return
		}
		index++
	}

	// 2. Report each repeated key once.
	if d.Len(v) <= 1 {
		return
	}
	times := make(stringCounts, d.Len(v))
	index = 0
	for i, end := d.First(v), d.Next(v); i < end; i = d.Next(i) {
		if times.isSecond(keyIdentity(d, n.keys, i)) {
			w.reportDuplicate(index, keyValues(d, n.keys, i))
		}
		index++
	}
}

// keyIdentity returns a string that is equal for items with equal keys, in the sense of duplicates.
func keyIdentity(d *tape.Doc, keys []string, item tape.Ref) string {
	var data []byte
	for _, k := range keys {
		if v := d.Find(item, k); v != tape.None {
			if len(keys) == 1 {
				return "=" + identity(d, v)
			}
			data = append(append(data, '='), d.AppendCanonical(nil, v)...)
		}
		data = append(data, 0)
	}
	return string(data)
}

// keyValues returns the values of an item's keys, for messages.
func keyValues(d *tape.Doc, keys []string, item tape.Ref) map[string]any {
	values := map[string]any{}
	for _, k := range keys {
		if v := d.Find(item, k); v != tape.None {
			values[k] = d.Any(v)
		}
	}
	return values
}
