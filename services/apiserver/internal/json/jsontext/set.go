package jsontext

import (
	"bytes"
	"encoding/json"
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

// node is a position in the document that lies on at least one path. The nodes form a tree.
type node struct {
	name  []byte
	index int
	// pathNumbers holds the numbers of the paths that end here.
	pathNumbers      []int
	fields, elements []*node
	// named and indexed index the same nodes if there are many.
	named   map[string]*node
	indexed map[int]*node
}

// minIndexed is the number of nodes from which they are indexed. Fewer are compared one by one.
const minIndexed = 16

// Compile returns a set of paths.
func Compile(paths ...Path) *Set {
	change := &Set{size: len(paths)}
	for i, p := range paths {
		end := &change.root
		for _, step := range p {
			end = end.ensureChild(step)
		}
		end.pathNumbers = append(end.pathNumbers, i)
	}
	return change
}

// ensureChild returns the child for a step. It creates the child if there is none.
func (n *node) ensureChild(step Step) *node {
	if step.Element {
		if child := n.elementChild(step.Index); child != nil {
			return child
		}
	} else if child := n.fieldChild([]byte(step.Name)); child != nil {
		return child
	}
	child := &node{name: []byte(step.Name), index: step.Index}
	if step.Element {
		n.elements = append(n.elements, child)
		n.indexed = updateIndex(n.indexed, n.elements, func(child *node) int { return child.index })
	} else {
		n.fields = append(n.fields, child)
		n.named = updateIndex(n.named, n.fields, func(child *node) string { return string(child.name) })
	}
	return child
}

// updateIndex adds the last of all nodes to the index by key, and returns the index. It returns nil
// if there are fewer than minIndexed nodes.
func updateIndex[K comparable](index map[K]*node, all []*node, key func(*node) K) map[K]*node {
	if len(all) < minIndexed {
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

// fieldChild returns the node of a member, or nil if no path leads there.
func (n *node) fieldChild(name []byte) *node {
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

// elementChild returns the node of a list element, or nil if no path leads there.
func (n *node) elementChild(index int) *node {
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

// Find returns the texts of the values in the order of the paths of Compile, nil for missing
// values. It reuses the memory of into. The results are slices of doc.
func (s *Set) Find(doc []byte, into [][]byte) ([][]byte, error) {
	into = append(into[:0], make([][]byte, s.size)...)
	doc = bytes.TrimSpace(doc)
	if len(doc) == 0 {
		return into, ErrMalformed
	}
	for _, i := range s.root.pathNumbers {
		into[i] = doc
	}
	if s.root.isLeaf() {
		return into, nil
	}
	_, err := s.root.findInside(doc, 0, into)
	return into, err
}

// Find returns the text of the value at a path, or nil if there is none.
func Find(doc []byte, path ...string) ([]byte, error) {
	var found [1][]byte
	out, err := Compile(Fields(path...)).Find(doc, found[:])
	return out[0], err
}

// isLeaf reports whether no path leads further.
func (n *node) isLeaf() bool { return len(n.fields)+len(n.elements) == 0 }

// findValue records the value that starts at a position, and the wanted values within it. It
// returns the position after the value.
func (n *node) findValue(doc []byte, at int, found [][]byte) (end int, err error) {
	if n.isLeaf() {
		end, err = Skip(doc, at)
	} else {
		n.clearFound(found) // the last of repeated fields counts
		end, err = n.findInside(doc, at, found)
	}
	if err == nil {
		for _, i := range n.pathNumbers {
			found[i] = doc[at:end]
		}
	}
	return end, err
}

// findInside records the wanted values within the value that starts at a position. It returns the
// position after the value.
func (n *node) findInside(doc []byte, at int, found [][]byte) (end int, err error) {
	switch {
	case at < len(doc) && doc[at] == '{' && len(n.fields) > 0:
		return MembersAt(doc, at, func(name []byte, at int) (int, bool, error) {
			if bytes.IndexByte(name, '\\') >= 0 {
				name = []byte(Name(name))
			}
			if c := n.fieldChild(name); c != nil {
				end, err := c.findValue(doc, at, found)
				return end, true, err
			}
			end, err := Skip(doc, at)
			return end, true, err
		})
	case at < len(doc) && doc[at] == '[' && len(n.elements) > 0:
		remaining := len(n.elements)
		return ElementsAt(doc, at, func(i, at int) (int, bool, error) {
			if c := n.elementChild(i); c != nil {
				remaining--
				end, err := c.findValue(doc, at, found)
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
	for _, i := range n.pathNumbers {
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

// IsNull reports whether a text is null.
func IsNull(value []byte) bool { return string(value) == "null" }

// Replace returns a copy of doc with another text in place of value, which must be a slice of doc.
func Replace(doc, value, with []byte) []byte {
	at := cap(doc) - cap(value) // slices of one array end at the same capacity
	out := make([]byte, 0, len(doc)-len(value)+len(with))
	return append(append(append(out, doc[:at]...), with...), doc[at+len(value):]...)
}
