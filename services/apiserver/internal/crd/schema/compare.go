package schema

import (
	"fmt"
	"strings"

	"binnacle/services/apiserver/internal/json/tape"
)

// Comparer finds the old value that corresponds to a new one, and reports whether they are equal in
// the sense of ratcheting. It is not safe for concurrent use.
type Comparer struct {
	program  *Program
	doc, old *tape.Doc
	keyed    map[tape.Ref]map[string]tape.Ref // items of old lists of type map, by their keys
	asked    map[comparison]bool
}

// comparison is a pair of a new and an old value. Each invalid value compares all the values around
// it, and each invalid item compares its list. Results are cached so that each pair is compared
// once.
type comparison struct {
	at     Place
	v, old tape.Ref
}

// NewComparer returns a Comparer of a document with the old one.
func (p *Program) NewComparer(d, old *tape.Doc) *Comparer {
	return &Comparer{program: p, doc: d, old: old}
}

// Equal reports whether a value is unchanged. An object with members that the schema does not
// describe is never equal.
func (c *Comparer) Equal(at Place, v, old tape.Ref) bool {
	if kind := c.doc.Kind(v); kind != tape.Object && kind != tape.Array {
		return c.equal(at, v, old)
	}
	of := comparison{at, v, old}
	same, known := c.asked[of]
	if !known {
		same = c.equal(at, v, old)
		if c.asked == nil {
			c.asked = map[comparison]bool{}
		}
		c.asked[of] = same
	}
	return same
}

// Keyed returns the item of an old list of type map with the same keys as item, or tape.None. Items
// of other lists have no old item.
func (c *Comparer) Keyed(at Place, old, item tape.Ref) tape.Ref {
	return c.keyedItem(&c.program.nodes[at], old, item)
}

func (c *Comparer) keyedItem(n *node, old, item tape.Ref) tape.Ref {
	if n.list != listMap || old == tape.None || c.old.Kind(old) != tape.Array {
		return tape.None
	}
	return c.byKeys(n, old, item)
}

// byKeys returns the first old item with the keys of item, or tape.None.
func (c *Comparer) byKeys(n *node, old, item tape.Ref) tape.Ref {
	if len(n.keys) == 0 {
		return tape.None
	}
	key, ok := keysOf(c.doc, n.keys, item)
	if !ok {
		return tape.None
	}
	items, ok := c.keyed[old]
	if !ok {
		items = make(map[string]tape.Ref, c.old.Len(old))
		for i, end := c.old.First(old), c.old.Next(old); i < end; i = c.old.Next(i) {
			k, ok := keysOf(c.old, n.keys, i)
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

// keysOf returns a string that is equal for items with equal keys. It returns false if the item
// lacks a key or if a key is not a scalar.
func keysOf(d *tape.Doc, keys []string, item tape.Ref) (string, bool) {
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

// equal is Equal without caching its result, for values within a value. There may be many.
func (c *Comparer) equal(at Place, v, old tape.Ref) bool {
	kind, was := c.doc.Kind(v), c.old.Kind(old)
	if kind == tape.Object || kind == tape.Array {
		if same, known := c.asked[comparison{at, v, old}]; known {
			return same
		}
	}
	switch {
	case kind == tape.Array && was == tape.Array:
		return c.equalLists(&c.program.nodes[at], v, old)
	case kind == tape.Object && was == tape.Object:
		return c.equalObjects(&c.program.nodes[at], v, old)
	}
	return tape.Equal(c.doc, v, c.old, old)
}

func (c *Comparer) equalLists(n *node, v, old tape.Ref) bool {
	if c.doc.Len(v) != c.old.Len(old) {
		return false
	}
	if n.list != listMap {
		return tape.Equal(c.doc, v, c.old, old)
	}
	for i, end := c.doc.First(v), c.doc.Next(v); i < end; i = c.doc.Next(i) {
		before := c.byKeys(n, old, i)
		if before == tape.None || n.items == nowhere || !c.equal(n.items, i, before) {
			return false
		}
	}
	return true
}

func (c *Comparer) equalObjects(n *node, v, old tape.Ref) bool {
	if c.doc.Len(v) != c.old.Len(old) {
		return false
	}
	for k, end := c.doc.First(v), c.doc.Next(v); k < end; k = c.doc.Next(k + 1) {
		at := n.child(c.doc, k)
		if at == nowhere {
			return false
		}
		before := c.old.Find(old, c.doc.String(k))
		if before == tape.None || !c.equal(at, k+1, before) {
			return false
		}
	}
	return true
}
