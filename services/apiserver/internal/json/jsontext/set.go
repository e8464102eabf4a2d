package jsontext

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// Step is one part of a path: a member of an object or an element of a list.
type Step struct {
	Name string
	// Index is the index of an element. It is used if Element is set.
	Index   int
	Element bool
}

// Path is the path from the document to a value. An empty path denotes the document.
type Path []Step

// Fields returns the path through members of objects.
func Fields(names ...string) Path {
	p := make(Path, len(names))
	for i, n := range names {
		p[i].Name = n
	}
	return p
}

// Set is a set of paths that are searched together. It is immutable.
type Set struct {
	root node
	size int
}

// node is a position in the document on at least one path.
type node struct {
	name  []byte
	index int
	// ends holds the numbers of the paths that end here.
	ends             []int
	fields, elements []*node
	// named and indexed index the same nodes if there are many.
	named   map[string]*node
	indexed map[int]*node
}

// many is the number of nodes from which they are indexed. Fewer are compared one by one.
const many = 16

// Compile returns a set of paths.
func Compile(paths ...Path) *Set {
	s := &Set{size: len(paths)}
	for i, p := range paths {
		end := &s.root
		for _, step := range p {
			end = end.child(step)
		}
		end.ends = append(end.ends, i)
	}
	return s
}

// child returns the child of a step, which it creates if necessary.
func (n *node) child(s Step) *node {
	if s.Element {
		if c := n.element(s.Index); c != nil {
			return c
		}
	} else if c := n.field([]byte(s.Name)); c != nil {
		return c
	}
	c := &node{name: []byte(s.Name), index: s.Index}
	if s.Element {
		n.elements = append(n.elements, c)
		n.indexed = lookup(n.indexed, n.elements, func(c *node) int { return c.index })
	} else {
		n.fields = append(n.fields, c)
		n.named = lookup(n.named, n.fields, func(c *node) string { return string(c.name) })
	}
	return c
}

// lookup returns the index of all nodes by key, or nil if they are few. Only the last one is new.
func lookup[K comparable](index map[K]*node, all []*node, key func(*node) K) map[K]*node {
	if len(all) < many {
		return nil
	}
	if index == nil {
		index = map[K]*node{}
		for _, c := range all {
			index[key(c)] = c
		}
	}
	last := all[len(all)-1]
	index[key(last)] = last
	return index
}

// field returns the node of a member, or nil if no path leads there.
func (n *node) field(name []byte) *node {
	if n.named != nil {
		return n.named[string(name)]
	}
	for _, c := range n.fields {
		if bytes.Equal(name, c.name) {
			return c
		}
	}
	return nil
}

// element is field for elements.
func (n *node) element(index int) *node {
	if n.indexed != nil {
		return n.indexed[index]
	}
	for _, c := range n.elements {
		if c.index == index {
			return c
		}
	}
	return nil
}

// Find returns the texts of the values by path number, nil for missing values. It reuses into. The
// results are slices of doc.
func (s *Set) Find(doc []byte, into [][]byte) ([][]byte, error) {
	into = append(into[:0], make([][]byte, s.size)...)
	doc = bytes.TrimSpace(doc)
	if len(doc) == 0 {
		return into, ErrMalformed
	}
	for _, i := range s.root.ends {
		into[i] = doc
	}
	if s.root.leaf() {
		return into, nil
	}
	_, err := s.root.findIn(doc, 0, into)
	return into, err
}

// Find returns the text of the value at a path, or nil if there is none.
func Find(doc []byte, path ...string) ([]byte, error) {
	var found [1][]byte
	out, err := Compile(Fields(path...)).Find(doc, found[:])
	return out[0], err
}

// leaf reports whether no path leads further.
func (n *node) leaf() bool { return len(n.fields)+len(n.elements) == 0 }

// find records the value that starts at a position, and the wanted values within it. It returns the
// position after the value.
func (n *node) find(doc []byte, at int, found [][]byte) (end int, err error) {
	if n.leaf() {
		end, err = Skip(doc, at)
	} else {
		n.clearFound(found) // the last of repeated fields counts
		end, err = n.findIn(doc, at, found)
	}
	if err == nil {
		for _, i := range n.ends {
			found[i] = doc[at:end]
		}
	}
	return end, err
}

// findIn finds the wanted values within a value.
func (n *node) findIn(doc []byte, at int, found [][]byte) (end int, err error) {
	switch {
	case at < len(doc) && doc[at] == '{' && len(n.fields) > 0:
		return MembersAt(doc, at, func(name []byte, at int) (int, bool, error) {
			if bytes.IndexByte(name, '\\') >= 0 {
				name = []byte(Name(name))
			}
			if c := n.field(name); c != nil {
				end, err := c.find(doc, at, found)
				return end, true, err
			}
			end, err := Skip(doc, at)
			return end, true, err
		})
	case at < len(doc) && doc[at] == '[' && len(n.elements) > 0:
		remaining := len(n.elements)
		return ElementsAt(doc, at, func(i, at int) (int, bool, error) {
			if c := n.element(i); c != nil {
				remaining--
				end, err := c.find(doc, at, found)
				return end, remaining > 0, err
			}
			end, err := Skip(doc, at)
			return end, true, err
		})
	default:
		return Skip(doc, at)
	}
}

// clearFound clears the values found at and below a node.
func (n *node) clearFound(found [][]byte) {
	for _, i := range n.ends {
		found[i] = nil
	}
	for _, c := range n.fields {
		c.clearFound(found)
	}
	for _, c := range n.elements {
		c.clearFound(found)
	}
}

// sameName compares the text of a name with the name itself.
func sameName(data, name []byte) bool {
	if bytes.IndexByte(data, '\\') < 0 {
		return bytes.Equal(data, name)
	}
	return Name(data) == string(name)
}

// Name returns the name of a member for the text between its quotes.
func Name(data []byte) string {
	if bytes.IndexByte(data, '\\') < 0 {
		return string(data)
	}
	quoted := make([]byte, 0, len(data)+2)
	s, _ := Text(append(append(append(quoted, '"'), data...), '"'))
	return s
}

// Text returns the value of a JSON string, or false if the text is not a string.
func Text(value []byte) (string, bool) {
	if len(value) < 2 || value[0] != '"' {
		return "", false
	}
	if inner := value[1 : len(value)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), true
	}
	var s string
	return s, json.Unmarshal(value, &s) == nil
}

// Int returns the value of a JSON integer, or false if the text is not an integer.
func Int(value []byte) (int64, bool) {
	n, err := strconv.ParseInt(string(value), 10, 64)
	return n, err == nil
}

// IsNull reports whether a text is null.
func IsNull(value []byte) bool { return string(value) == "null" }

// Replace returns a document in which another text replaces a value that was found in it.
func Replace(doc, value, with []byte) []byte {
	at := cap(doc) - cap(value) // value is a slice of doc
	out := make([]byte, 0, len(doc)-len(value)+len(with))
	return append(append(append(out, doc[:at]...), with...), doc[at+len(value):]...)
}
