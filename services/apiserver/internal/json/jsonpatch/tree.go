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
	copied, moved int // compared with MaxCopies and MaxMoved
	sources       []*source
}

// source is a JSON text: the document or the value of an operation. Nodes refer to its parts.
type source struct {
	raw   []byte
	depth int
	doc   *tape.Doc // parsed form, set when the first node of the text is opened
}

// node is a value. A nil node is null. A node refers to a part of a source until an operation reads
// or changes its content. Then openNode sets branch, and source and at are no longer used.
type node struct {
	source *source
	ref    tape.Ref
	branch *branch
}

// branch is an object or list whose members or items are separate nodes, so that operations can
// change it.
type branch struct {
	members map[string]*node
	items   []*node
	list    bool
	depth   int // upper bound of the depth of its values
}

// location is the end of a path: a member or an element, which need not exist.
type location struct {
	container *branch
	key       string
	// ancestors holds the objects and lists on the path.
	ancestors []*branch
}

// newNode returns a node for a JSON text, or nil for null.
func (t *tree) newNode(raw []byte) *node {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	s := &source{raw: raw, depth: jsontext.Measure(raw).Depth}
	t.sources = append(t.sources, s)
	return &node{source: s}
}

// release returns the parsed sources to their pool.
func (t *tree) release() {
	for _, s := range t.sources {
		s.doc.Release()
	}
}

// rawText returns the text of a node that is not opened.
func (n *node) rawText() []byte {
	if n.source.doc == nil {
		return n.source.raw
	}
	return n.source.doc.Text(n.ref)
}

// openNode parses an object or a list into its branch, one level deep. It returns false for other
// values.
func (t *tree) openNode(treeNode *node) bool {
	if treeNode.branch != nil {
		return true
	}
	if b := treeNode.rawText()[0]; b != '{' && b != '[' {
		return false
	}
	src := treeNode.source
	if src.doc == nil {
		var err error
		if src.doc, err = tape.Parse(src.raw); err != nil {
			return false
		}
	}
	doc := src.doc
	treeNode.branch = &branch{list: doc.Kind(treeNode.ref) == tape.Array, depth: src.depth}
	nodes := make([]node, 0, doc.Len(treeNode.ref))
	value := func(at tape.Ref) *node {
		if doc.Kind(at) == tape.Null {
			return nil
		}
		nodes = append(nodes, node{source: src, ref: at})
		return &nodes[len(nodes)-1]
	}
	if treeNode.branch.list {
		treeNode.branch.items = make([]*node, 0, doc.Len(treeNode.ref))
		for i, end := doc.First(treeNode.ref), doc.Next(treeNode.ref); i < end; i = doc.Next(i) {
			treeNode.branch.items = append(treeNode.branch.items, value(i))
		}
		return true
	}
	treeNode.branch.members = make(map[string]*node, doc.Len(treeNode.ref))
	for k, end := doc.First(treeNode.ref), doc.Next(treeNode.ref); k < end; k = doc.Next(k + 1) {
		treeNode.branch.members[doc.String(k)] = value(k + 1) // the last duplicate counts
	}
	return true
}

// unescape decodes a part of a path (RFC 6901, section 4, "Evaluation").
var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// locate resolves a path (RFC 6901). It returns false if a value on the path is missing.
func (t *tree) locate(path string) (location, bool) {
	parts := strings.Split(path, "/")
	if len(parts) < 2 || len(parts) > maxDepth {
		return location{}, false
	}
	end := location{container: t.root, ancestors: make([]*branch, 0, len(parts)-1)}
	for _, part := range parts[1:] {
		end.ancestors = append(end.ancestors, end.container)
		if len(end.ancestors) > 1 {
			treeNode, err := end.get()
			if err != nil || treeNode == nil || !t.openNode(treeNode) {
				return location{}, false
			}
			end.container = treeNode.branch
			end.ancestors[len(end.ancestors)-1] = end.container
		}
		end.key = unescape.Replace(part)
	}
	return end, true
}

func invalidIndex(i int) error {
	return fmt.Errorf("Unable to access invalid index: %d: %w", i, errIndex) //nolint:staticcheck // the words that clients know
}

// resolveIndex returns the index that the key denotes in a list of the given length. Negative indexes
// count from the end.
func resolveIndex(key string, length int) (int, error) {
	i, err := strconv.Atoi(key)
	if err != nil {
		return 0, err
	}
	if i >= length || i < -length {
		return 0, invalidIndex(i)
	}
	if i < 0 {
		i += length
	}
	return i, nil
}

// get returns the value at the location. A missing member is null.
func (p location) get() (*node, error) {
	if !p.container.list {
		return p.container.members[p.key], nil
	}
	i, err := resolveIndex(p.key, len(p.container.items))
	if err != nil {
		return nil, err
	}
	return p.container.items[i], nil
}

// set replaces the value at the location, or adds a member.
func (p location) set(treeNode *node) error {
	if err := p.updateDepths(treeNode); err != nil {
		return err
	}
	if !p.container.list {
		p.container.members[p.key] = treeNode
		return nil
	}
	i, err := resolveIndex(p.key, len(p.container.items))
	if err == nil {
		p.container.items[i] = treeNode
	}
	return err
}

// addAt adds or replaces a member, or inserts an element at the location.
func (t *tree) addAt(target location, treeNode *node) error {
	if !target.container.list {
		return target.set(treeNode)
	}
	i := len(target.container.items)
	if target.key != "-" {
		var err error
		i, err = resolveIndex(target.key, i+1)
		if errors.Is(err, errIndex) {
			return err
		} else if err != nil {
			return fmt.Errorf("value was not a proper array index: '%s': %w", target.key, err)
		}
	}
	if err := t.countShifted(len(target.container.items) - i); err != nil {
		return err
	}
	if err := target.updateDepths(treeNode); err != nil {
		return err
	}
	target.container.items = slices.Insert(target.container.items, i, treeNode)
	return nil
}

// removeAt removes the value at the location.
func (t *tree) removeAt(target location) error {
	if !target.container.list {
		if _, ok := target.container.members[target.key]; !ok {
			//nolint:staticcheck // the words that clients know
			return fmt.Errorf("Unable to remove nonexistent key: %s: %w", target.key, errMissing)
		}
		delete(target.container.members, target.key)
		return nil
	}
	i, err := resolveIndex(target.key, len(target.container.items))
	if err != nil {
		return err
	}
	if err := t.countShifted(len(target.container.items) - i); err != nil {
		return err
	}
	target.container.items = slices.Delete(target.container.items, i, i+1)
	return nil
}

// countShifted counts n list elements that an operation shifts. It returns ErrMoved beyond
// MaxMoved.
func (t *tree) countShifted(n int) error {
	t.moved += n
	if t.moved > MaxMoved {
		return ErrMoved
	}
	return nil
}

// depth returns an upper bound of the depth of a value.
func (n *node) depth() int {
	switch {
	case n == nil:
		return 0
	case n.branch != nil:
		return n.branch.depth
	}
	if b := n.rawText()[0]; b != '{' && b != '[' {
		return 0
	}
	return n.source.depth
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
	case n.branch == nil:
		return len(n.rawText())
	}
	const punctuation = len(`"":,`)
	for key, m := range n.branch.members {
		bytes += punctuation + len(key) + m.size()
	}
	for _, m := range n.branch.items {
		bytes += 1 + m.size()
	}
	return bytes + 2
}

// clone returns a deep copy. The text of unopened nodes is shared.
func (n *node) clone() *node {
	switch {
	case n == nil:
		return nil
	case n.branch == nil:
		return &node{source: n.source, ref: n.ref}
	}
	copied := &branch{list: n.branch.list, depth: n.branch.depth}
	if !copied.list {
		copied.members = make(map[string]*node, len(n.branch.members))
		for key, m := range n.branch.members {
			copied.members[key] = m.clone()
		}
	}
	for _, m := range n.branch.items {
		copied.items = append(copied.items, m.clone())
	}
	return &node{branch: copied}
}

// equal reports whether two values are equal. Scalars are equal if their texts are.
func (t *tree) equal(a, b *node) bool {
	if a == nil || b == nil {
		return a == b
	}
	if !t.openNode(a) || !t.openNode(b) {
		return a.branch == nil && b.branch == nil && !t.openNode(b) && bytes.Equal(a.rawText(), b.rawText())
	}
	x, otherBranch := a.branch, b.branch
	if x.list != otherBranch.list || len(x.members) != len(otherBranch.members) || len(x.items) != len(otherBranch.items) {
		return false
	}
	for key, member := range x.members {
		if other, ok := otherBranch.members[key]; !ok || !t.equal(member, other) {
			return false
		}
	}
	for i, item := range x.items {
		if !t.equal(item, otherBranch.items[i]) {
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
	case n.branch == nil:
		return append(dst, n.rawText()...)
	}
	return n.branch.append(dst)
}
