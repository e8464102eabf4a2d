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
	node       NodeIndex
	value, old tape.Ref
}

// NewComparer returns a Comparer of a document with the old one.
func (p *Program) NewComparer(d, old *tape.Doc) *Comparer {
	return &Comparer{program: p, doc: d, old: old}
}

// Equal reports whether a value is unchanged. An object with members that the schema does not
// describe is never equal.
func (c *Comparer) Equal(at NodeIndex, value, old tape.Ref) bool {
	if kind := c.doc.Kind(value); kind != tape.Object && kind != tape.Array {
		return c.equal(at, value, old)
	}
	compared := comparison{at, value, old}
	isEqual, known := c.results[compared]
	if !known {
		isEqual = c.equal(at, value, old)
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
func (c *Comparer) keyedItem(schemaNode *node, old, item tape.Ref) tape.Ref {
	if schemaNode.listType != listMap || old == tape.None || c.old.Kind(old) != tape.Array {
		return tape.None
	}
	return c.findByKeys(schemaNode, old, item)
}

// findByKeys returns the first old item with the keys of item, or tape.None.
func (c *Comparer) findByKeys(schemaNode *node, old, item tape.Ref) tape.Ref {
	if len(schemaNode.keys) == 0 {
		return tape.None
	}
	key, ok := scalarKeys(c.doc, schemaNode.keys, item)
	if !ok {
		return tape.None
	}
	items, ok := c.keyed[old]
	if !ok {
		items = make(map[string]tape.Ref, c.old.Len(old))
		for i, end := c.old.First(old), c.old.Next(old); i < end; i = c.old.Next(i) {
			k, ok := scalarKeys(c.old, schemaNode.keys, i)
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
func scalarKeys(doc *tape.Doc, keys []string, item tape.Ref) (string, bool) {
	if doc.Kind(item) != tape.Object {
		return "", false
	}
	var builder strings.Builder
	for _, k := range keys {
		value := doc.Find(item, k)
		if value == tape.None {
			return "", false
		}
		switch doc.Kind(value) {
		case tape.True, tape.False:
			builder.Write(doc.Text(value))
		case tape.Number:
			if i, ok := doc.Int(value); ok {
				fmt.Fprintf(&builder, "%d", i)
			} else if len(keys) == 1 {
				fmt.Fprintf(&builder, "f%g", doc.Float(value))
			} else { // with several keys, Kubernetes compares six digits
				fmt.Fprintf(&builder, "%f", doc.Float(value))
			}
		case tape.String:
			fmt.Fprintf(&builder, "%q", doc.String(value))
		default:
			return "", false
		}
		builder.WriteByte(0)
	}
	return builder.String(), true
}

// equal compares two values like Equal. It does not cache the result, because a value may have many
// values within.
func (c *Comparer) equal(at NodeIndex, value, old tape.Ref) bool {
	kind, oldKind := c.doc.Kind(value), c.old.Kind(old)
	if kind == tape.Object || kind == tape.Array {
		if isEqual, known := c.results[comparison{at, value, old}]; known {
			return isEqual
		}
	}
	switch {
	case kind == tape.Array && oldKind == tape.Array:
		return c.equalLists(&c.program.nodes[at], value, old)
	case kind == tape.Object && oldKind == tape.Object:
		return c.equalObjects(&c.program.nodes[at], value, old)
	}
	return tape.Equal(c.doc, value, c.old, old)
}

// equalLists reports whether two lists are equal. The order of lists of type map does not matter.
func (c *Comparer) equalLists(schemaNode *node, value, old tape.Ref) bool {
	if c.doc.Len(value) != c.old.Len(old) {
		return false
	}
	if schemaNode.listType != listMap {
		return tape.Equal(c.doc, value, c.old, old)
	}
	for item, end := c.doc.First(value), c.doc.Next(value); item < end; item = c.doc.Next(item) {
		oldItem := c.findByKeys(schemaNode, old, item)
		if oldItem == tape.None || schemaNode.items == NoNode || !c.equal(schemaNode.items, item, oldItem) {
			return false
		}
	}
	return true
}

// equalObjects reports whether two objects have equal members.
func (c *Comparer) equalObjects(schemaNode *node, value, old tape.Ref) bool {
	if c.doc.Len(value) != c.old.Len(old) {
		return false
	}
	for key, end := c.doc.First(value), c.doc.Next(value); key < end; key = c.doc.Next(key + 1) {
		at := schemaNode.child(c.doc, key)
		if at == NoNode {
			return false
		}
		before := c.old.Find(old, c.doc.String(key))
		if before == tape.None || !c.equal(at, key+1, before) {
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
func (w *walker) visitChildren(schemaNode *node, value tape.Ref, matches func(*node) bool, visit func(at NodeIndex, value tape.Ref)) {
	doc := w.doc
	switch doc.Kind(value) {
	case tape.Array:
		if schemaNode.items == NoNode || !matches(&w.program.nodes[schemaNode.items]) {
			return
		}
		index := int32(0)
		for i, end := doc.First(value), doc.Next(value); i < end; i = doc.Next(i) {
			w.visit(step{kind: stepIndex, index: index}, schemaNode.items, i, visit)
			index++
		}
	case tape.Object:
		next := 0
		for key, end := doc.First(value), doc.Next(value); key < end; key = doc.Next(key + 1) {
			at, kind := schemaNode.values, stepValue
			if i := schemaNode.find(doc, key, next); i >= 0 {
				next = i + 1
				at = schemaNode.props[i].node
				kind = stepProp
			}
			if at != NoNode && matches(&w.program.nodes[at]) {
				w.visit(step{kind: kind, key: key}, at, key+1, visit)
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
func (p *Program) checkLists(doc *tape.Doc, base *field.Path) field.ErrorList {
	if !p.nodes[Root].containsSetsOrMaps {
		return nil
	}
	w := walker{program: p, doc: doc, base: base}
	w.checkListsBelow(Root, tape.Root)
	return w.errs
}

// checkListsBelow checks the lists at and below a value.
func (w *walker) checkListsBelow(at NodeIndex, value tape.Ref) {
	schemaNode := &w.program.nodes[at]
	if w.doc.Kind(value) == tape.Array {
		switch schemaNode.listType {
		case listSet:
			w.checkSet(value)
		case listMap:
			w.checkKeyedList(schemaNode, value)
		}
	}
	w.visitChildren(schemaNode, value, hasSetsOrMaps, w.checkListsBelow)
}

// reportDuplicate reports an item that occurs earlier in its list.
func (w *walker) reportDuplicate(index int, value any) {
	if w.mayReport() {
		w.record(field.Duplicate(w.path().Index(index), value))
	}
}

// checkSet reports each repeated value once.
func (w *walker) checkSet(value tape.Ref) {
	doc := w.doc
	if doc.Len(value) <= 1 {
		return
	}
	times := make(stringCounts, doc.Len(value))
	index := 0
	for i, end := doc.First(value), doc.Next(value); i < end; i = doc.Next(i) {
		if times.isSecond(identity(doc, i)) {
			w.reportDuplicate(index, doc.Any(i))
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
func identity(doc *tape.Doc, value tape.Ref) string {
	switch doc.Kind(value) {
	case tape.Number:
		if _, ok := doc.Int(value); !ok {
			return "float " + string(doc.AppendCanonical(nil, value))
		}
	case tape.String:
		return `"` + doc.String(value)
	}
	return string(doc.AppendCanonical(nil, value))
}

// checkKeyedList reports items with equal keys.
func (w *walker) checkKeyedList(schemaNode *node, value tape.Ref) {
	doc := w.doc

	// 1. All items must be objects.
	index := 0
	for i, end := doc.First(value), doc.Next(value); i < end; i = doc.Next(i) {
		if k := doc.Kind(i); k != tape.Object && k != tape.Null {
			if w.mayReport() {
				w.record(field.Invalid(w.path().Index(index), doc.Any(i), "must be an object for an array of list-type map"))
			}
			return
		}
		index++
	}

	// 2. Report each repeated key once.
	if doc.Len(value) <= 1 {
		return
	}
	times := make(stringCounts, doc.Len(value))
	index = 0
	for i, end := doc.First(value), doc.Next(value); i < end; i = doc.Next(i) {
		if times.isSecond(keyIdentity(doc, schemaNode.keys, i)) {
			w.reportDuplicate(index, keyValues(doc, schemaNode.keys, i))
		}
		index++
	}
}

// keyIdentity returns a string that is equal for items with equal keys, in the sense of duplicates.
func keyIdentity(doc *tape.Doc, keys []string, item tape.Ref) string {
	var data []byte
	for _, k := range keys {
		if value := doc.Find(item, k); value != tape.None {
			if len(keys) == 1 {
				return "=" + identity(doc, value)
			}
			data = append(append(data, '='), doc.AppendCanonical(nil, value)...)
		}
		data = append(data, 0)
	}
	return string(data)
}

// keyValues returns the values of an item's keys, for messages.
func keyValues(doc *tape.Doc, keys []string, item tape.Ref) map[string]any {
	values := map[string]any{}
	for _, k := range keys {
		if v := doc.Find(item, k); v != tape.None {
			values[k] = doc.Any(v)
		}
	}
	return values
}
