package jsonpatch

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"binnacle/services/apiserver/internal/json/jsontext"
	"binnacle/services/apiserver/internal/json/tape"
)

// tree is a document with the patch partially applied.
type tree struct {
	root          *branch
	copied, moved int
	texts         []*text
}

// text is a text that nodes refer to.
type text struct {
	raw   []byte
	depth int
	doc   *tape.Doc // set when one of its values is opened
}

// node is a value; nil is null. It is a part of a text until an operation opens it.
type node struct {
	text *text
	at   tape.Ref
	tree *branch
}

// branch is an opened object or list.
type branch struct {
	members map[string]*node
	items   []*node
	list    bool
	depth   int // upper bound of the depth of its values
}

// location is the end of a path: a member or an element, which need not exist.
type location struct {
	in  *branch
	key string
	// ancestors holds the objects and lists on the path.
	ancestors []*branch
}

// read returns a node for a text.
func (t *tree) read(raw []byte) *node {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	s := &text{raw: raw, depth: jsontext.Measure(raw).Depth}
	t.texts = append(t.texts, s)
	return &node{text: s}
}

func (t *tree) release() {
	for _, s := range t.texts {
		s.doc.Release()
	}
}

// encoded returns the text of a node that is not opened.
func (n *node) encoded() []byte {
	if n.text.doc == nil {
		return n.text.raw
	}
	return n.text.doc.Text(n.at)
}

// open parses an object or a list into a branch. It returns false for other values.
func (t *tree) open(n *node) bool {
	if n.tree != nil {
		return true
	}
	if b := n.encoded()[0]; b != '{' && b != '[' {
		return false
	}
	source := n.text
	if source.doc == nil {
		var err error
		if source.doc, err = tape.Parse(source.raw); err != nil {
			return false
		}
	}
	d := source.doc
	n.tree = &branch{list: d.Kind(n.at) == tape.Array, depth: source.depth}
	nodes := make([]node, 0, d.Len(n.at))
	value := func(at tape.Ref) *node {
		if d.Kind(at) == tape.Null {
			return nil
		}
		nodes = append(nodes, node{text: source, at: at})
		return &nodes[len(nodes)-1]
	}
	if n.tree.list {
		n.tree.items = make([]*node, 0, d.Len(n.at))
		for i, end := d.First(n.at), d.Next(n.at); i < end; i = d.Next(i) {
			n.tree.items = append(n.tree.items, value(i))
		}
		return true
	}
	n.tree.members = make(map[string]*node, d.Len(n.at))
	for k, end := d.First(n.at), d.Next(n.at); k < end; k = d.Next(k + 1) {
		n.tree.members[d.String(k)] = value(k + 1) // the last duplicate counts
	}
	return true
}

// unescape decodes a part of a path (RFC 6901, "Evaluation").
var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// find resolves a path (RFC 6901). It returns false if a value on the path is missing.
func (t *tree) find(path string) (location, bool) {
	parts := strings.Split(path, "/")
	if len(parts) < 2 || len(parts) > maxDepth {
		return location{}, false
	}
	end := location{in: t.root, ancestors: make([]*branch, 0, len(parts)-1)}
	for _, part := range parts[1:] {
		end.ancestors = append(end.ancestors, end.in)
		if len(end.ancestors) > 1 {
			n, err := end.get()
			if err != nil || n == nil || !t.open(n) {
				return location{}, false
			}
			end.in = n.tree
			end.ancestors[len(end.ancestors)-1] = end.in
		}
		end.key = unescape.Replace(part)
	}
	return end, true
}

func invalidIndex(i int) error {
	return fmt.Errorf("Unable to access invalid index: %d: %w", i, errIndex) //nolint:staticcheck // the words that clients know
}

// index returns the index that the key denotes in a list of length n. Negative ones count from the
// end.
func index(key string, n int) (int, error) {
	i, err := strconv.Atoi(key)
	if err != nil {
		return 0, err
	}
	if i >= n || i < -n {
		return 0, invalidIndex(i)
	}
	if i < 0 {
		i += n
	}
	return i, nil
}

// get returns the value at the location. A missing member is null.
func (p location) get() (*node, error) {
	if !p.in.list {
		return p.in.members[p.key], nil
	}
	i, err := index(p.key, len(p.in.items))
	if err != nil {
		return nil, err
	}
	return p.in.items[i], nil
}

// set replaces the value at the location, or adds a member.
func (p location) set(n *node) error {
	if err := p.updateDepths(n); err != nil {
		return err
	}
	if !p.in.list {
		p.in.members[p.key] = n
		return nil
	}
	i, err := index(p.key, len(p.in.items))
	if err == nil {
		p.in.items[i] = n
	}
	return err
}

// put adds or replaces a member, or inserts an element at the location.
func (t *tree) put(p location, n *node) error {
	if !p.in.list {
		return p.set(n)
	}
	i := len(p.in.items)
	if p.key != "-" {
		var err error
		i, err = index(p.key, i+1)
		if errors.Is(err, errIndex) {
			return err
		} else if err != nil {
			return fmt.Errorf("value was not a proper array index: '%s': %w", p.key, err)
		}
	}
	if err := t.shift(len(p.in.items) - i); err != nil {
		return err
	}
	if err := p.updateDepths(n); err != nil {
		return err
	}
	p.in.items = slices.Insert(p.in.items, i, n)
	return nil
}

// detach removes the value at the location.
func (t *tree) detach(p location) error {
	if !p.in.list {
		if _, ok := p.in.members[p.key]; !ok {
			return fmt.Errorf("Unable to remove nonexistent key: %s: %w", p.key, errMissing) //nolint:staticcheck // the words that clients know
		}
		delete(p.in.members, p.key)
		return nil
	}
	i, err := index(p.key, len(p.in.items))
	if err != nil {
		return err
	}
	if err := t.shift(len(p.in.items) - i); err != nil {
		return err
	}
	p.in.items = slices.Delete(p.in.items, i, i+1)
	return nil
}

// shift counts elements that are shifted.
func (t *tree) shift(n int) error {
	t.moved += n
	if t.moved > MaxMoved {
		return ErrMoved
	}
	return nil
}

func (n *node) depth() int {
	switch {
	case n == nil:
		return 0
	case n.tree != nil:
		return n.tree.depth
	}
	if b := n.encoded()[0]; b != '{' && b != '[' {
		return 0
	}
	return n.text.depth
}

// updateDepths updates the depths on the path for a node that is added at the location.
func (p location) updateDepths(n *node) error {
	depth := n.depth()
	if depth+len(p.ancestors) > maxDepth {
		return errDepth
	}
	for _, b := range slices.Backward(p.ancestors) {
		depth++
		if b.depth >= depth {
			break // the branches above are deeper still
		}
		b.depth = depth
	}
	return nil
}

// size returns the approximate size in bytes of a node's text.
func (n *node) size() (bytes int) {
	switch {
	case n == nil:
		return 0
	case n.tree == nil:
		return len(n.encoded())
	}
	const punctuation = len(`"":,`)
	for key, m := range n.tree.members {
		bytes += punctuation + len(key) + m.size()
	}
	for _, m := range n.tree.items {
		bytes += 1 + m.size()
	}
	return bytes + 2
}

// clone returns a deep copy. The text of unopened nodes is shared.
func (n *node) clone() *node {
	switch {
	case n == nil:
		return nil
	case n.tree == nil:
		return &node{text: n.text, at: n.at}
	}
	b := &branch{list: n.tree.list, depth: n.tree.depth}
	if !b.list {
		b.members = make(map[string]*node, len(n.tree.members))
		for key, m := range n.tree.members {
			b.members[key] = m.clone()
		}
	}
	for _, m := range n.tree.items {
		b.items = append(b.items, m.clone())
	}
	return &node{tree: b}
}

// equal reports whether two values are equal. Scalars are equal if their texts are.
func (t *tree) equal(a, b *node) bool {
	if a == nil || b == nil {
		return a == b
	}
	if !t.open(a) || !t.open(b) {
		return a.tree == nil && b.tree == nil && !t.open(b) && bytes.Equal(a.encoded(), b.encoded())
	}
	if a.tree.list != b.tree.list || len(a.tree.members) != len(b.tree.members) || len(a.tree.items) != len(b.tree.items) {
		return false
	}
	for key, m := range a.tree.members {
		if other, ok := b.tree.members[key]; !ok || !t.equal(m, other) {
			return false
		}
	}
	for i, m := range a.tree.items {
		if !t.equal(m, b.tree.items[i]) {
			return false
		}
	}
	return true
}

// append appends the JSON of a branch, with members ordered by name.
func (b *branch) append(dst []byte) []byte {
	if b.list {
		dst = append(dst, '[')
		for i, m := range b.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = m.append(dst)
		}
		return append(dst, ']')
	}
	dst = append(dst, '{')
	for i, key := range slices.Sorted(maps.Keys(b.members)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(jsontext.AppendString(dst, key), ':')
		dst = b.members[key].append(dst)
	}
	return append(dst, '}')
}

func (n *node) append(dst []byte) []byte {
	switch {
	case n == nil:
		return append(dst, "null"...)
	case n.tree == nil:
		return append(dst, n.encoded()...)
	}
	return n.tree.append(dst)
}
