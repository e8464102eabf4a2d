// Package jsonpatch applies JSON patches (RFC 6902) of clients, webhooks and policies. It has no
// state.
//
// The semantics are those of gopkg.in/evanphx/json-patch.v4, which Kubernetes uses: "replace" of a
// missing member adds it, negative indexes count from the end, and scalars are equal if their texts
// are. The cost grows with the total size of the document and the patch, independent of their depth
// and of the number of operations: each text is parsed once, only values on the paths become a
// tree, and the tree is encoded once.
package jsonpatch

import (
	"encoding/json"
	"errors"
	"fmt"

	"binnacle/services/apiserver/internal/json/tape"
)

// Patch is a list of operations.
type Patch []Operation

// Operation is one operation: its members by name, nil for null.
type Operation map[string]*json.RawMessage

const (
	// MaxCopies is the maximum total size in bytes of the values that a patch copies.
	MaxCopies = 3 << 20
	// MaxMoved is the maximum number of list elements that a patch may shift by insertions and
	// removals. Shifting that many takes about 200 ms.
	MaxMoved = 50_000_000
	// maxDepth is the maximum nesting depth of the document between operations.
	maxDepth = tape.MaxDepth
)

// Errors of Apply, which may be wrapped.
var (
	// ErrTestFailed: a "test" operation failed.
	ErrTestFailed = errors.New("test failed")
	// ErrMoved: the patch exceeds MaxMoved.
	ErrMoved = fmt.Errorf("the operations move more than %d elements of lists", MaxMoved)

	errMissing = errors.New("missing value")
	errIndex   = errors.New("invalid index referenced")
	errDepth   = errors.New("exceeded max depth")
)

// Decode decodes a patch.
func Decode(raw []byte) (p Patch, err error) {
	err = json.Unmarshal(raw, &p)
	return p, err
}

// Apply returns the document with the patch applied. It returns an error if an operation cannot be
// applied.
func Apply(doc []byte, patch Patch) ([]byte, error) {
	if len(doc) == 0 {
		return doc, nil
	}
	document := &tree{}
	defer document.release()
	root := document.newNode(doc)
	if root == nil || !document.openNode(root) {
		return nil, errors.New("the document is not a JSON object or list")
	}
	document.root = root.branch
	for i, op := range patch {
		if err := document.apply(i, op); err != nil {
			return nil, err
		}
	}
	return document.root.append(make([]byte, 0, len(doc))), nil
}

// stringMember returns a string member of an operation.
func (o Operation) stringMember(name string) (text string, err error) {
	raw := o[name]
	if raw == nil {
		return "", errMissing
	}
	err = json.Unmarshal(*raw, &text)
	return text, err
}

// Kind returns the "op" of an operation, or "unknown" if it is missing or no string.
func (o Operation) Kind() string {
	kind, err := o.stringMember("op")
	if err != nil {
		return "unknown"
	}
	return kind
}

// path returns the path of an operation, or an error if it is missing.
func (o Operation) path() (string, error) {
	path, err := o.stringMember("path")
	if errors.Is(err, errMissing) {
		err = fmt.Errorf("operation missing path field: %w", err)
	}
	return path, err
}

// from returns the source path of a move or copy, or an error if it is missing.
func (o Operation) from() (string, error) {
	from, err := o.stringMember("from")
	if errors.Is(err, errMissing) {
		err = fmt.Errorf("operation, missing from field: %w", err)
	}
	return from, err
}

// valueOf returns the value of an operation. A missing value is nil, which stands for null.
func (t *tree) valueOf(o Operation) *node {
	if raw := o["value"]; raw != nil {
		return t.newNode(*raw)
	}
	return nil
}

// apply applies the i-th operation.
func (t *tree) apply(i int, op Operation) error {
	switch kind := op.Kind(); kind {
	case "add":
		return t.applyAdd(op)
	case "remove":
		return t.applyRemove(op)
	case "replace":
		return t.applyReplace(i, op)
	case "move":
		return t.applyMove(op)
	case "copy":
		return t.applyCopy(op)
	case "test":
		return t.applyTest(i, op)
	default:
		return fmt.Errorf("Unexpected kind: %s", kind) //nolint:staticcheck // the words that clients know
	}
}

// applyAdd applies an add operation.
func (t *tree) applyAdd(op Operation) error {
	path, err := op.path()
	if err != nil {
		return fmt.Errorf("add operation failed to decode path: %w", errMissing)
	}
	target, ok := t.locate(path)
	if !ok {
		return fmt.Errorf("add operation does not apply: doc is missing path: \"%s\": %w", path, errMissing)
	}
	if err := t.addAt(target, t.valueOf(op)); err != nil {
		return fmt.Errorf("error in add for path: '%s': %w", path, err)
	}
	return nil
}

// applyRemove applies a remove operation.
func (t *tree) applyRemove(op Operation) error {
	path, err := op.path()
	if err != nil {
		return fmt.Errorf("remove operation failed to decode path: %w", errMissing)
	}
	target, ok := t.locate(path)
	if !ok {
		return fmt.Errorf("remove operation does not apply: doc is missing path: \"%s\": %w", path, errMissing)
	}
	if err := t.removeAt(target); err != nil {
		return fmt.Errorf("error in remove for path: '%s': %w", path, err)
	}
	return nil
}

// applyReplace applies a replace operation.
func (t *tree) applyReplace(i int, op Operation) error {
	path, err := op.path()
	if err != nil {
		return fmt.Errorf("replace operation failed to decode path: %w", err)
	}
	if path == "" {
		if _, hasValue := op["value"]; !hasValue {
			return fmt.Errorf("operation %d, replace, has no value", i)
		}
		if n := t.valueOf(op); n != nil && t.openNode(n) { // any other value changes nothing
			t.root = n.branch
		}
		return nil
	}
	target, ok := t.locate(path)
	if !ok {
		return fmt.Errorf("replace operation does not apply: doc is missing path: %s: %w", path, errMissing)
	}
	if _, err := target.get(); err != nil {
		return fmt.Errorf("replace operation does not apply: doc is missing key: %s: %w", path, errMissing)
	}
	if err := target.set(t.valueOf(op)); err != nil {
		return fmt.Errorf("error in remove for path: '%s': %w", path, err)
	}
	return nil
}

// applyMove applies a move operation.
func (t *tree) applyMove(op Operation) error {
	from, err := op.from()
	if err != nil {
		return fmt.Errorf("move operation failed to decode from: %w", err)
	}
	source, ok := t.locate(from)
	if !ok {
		return fmt.Errorf("move operation does not apply: doc is missing from path: %s: %w", from, errMissing)
	}
	treeNode, err := source.get()
	if err == nil {
		err = t.removeAt(source)
	}
	if err != nil {
		return fmt.Errorf("error in move for path: '%s': %w", source.key, err)
	}
	path, err := op.path()
	if err != nil {
		return fmt.Errorf("move operation failed to decode path: %w", err)
	}
	target, ok := t.locate(path)
	if !ok {
		return fmt.Errorf("move operation does not apply: doc is missing destination path: %s: %w", path, errMissing)
	}
	if err := t.addAt(target, treeNode); err != nil {
		return fmt.Errorf("error in move for path: '%s': %w", path, err)
	}
	return nil
}

// applyCopy applies a copy operation.
func (t *tree) applyCopy(op Operation) error {
	from, err := op.from()
	if err != nil {
		return fmt.Errorf("copy operation failed to decode from: %w", err)
	}
	source, ok := t.locate(from)
	if !ok {
		return fmt.Errorf("copy operation does not apply: doc is missing from path: %s: %w", from, errMissing)
	}
	treeNode, err := source.get()
	if err != nil {
		return fmt.Errorf("error in copy for from: '%s': %w", from, err)
	}
	path, err := op.path()
	if err != nil {
		return fmt.Errorf("copy operation failed to decode path: %w", errMissing)
	}
	target, ok := t.locate(path)
	if !ok {
		return fmt.Errorf("copy operation does not apply: doc is missing destination path: %s: %w", path, errMissing)
	}
	t.copied += treeNode.size()
	if t.copied > MaxCopies {
		//nolint:staticcheck // the words that clients know
		return fmt.Errorf("Unable to complete the copy, the accumulated size increase of copy is %d, exceeding the limit %d",
			t.copied, MaxCopies)
	}
	if err := t.addAt(target, treeNode.clone()); err != nil {
		return fmt.Errorf("error while adding value during copy: %w", err)
	}
	return nil
}

// applyTest applies a test operation.
func (t *tree) applyTest(i int, op Operation) error {
	path, err := op.path()
	if err != nil {
		return fmt.Errorf("test operation failed to decode path: %w", err)
	}
	treeNode := &node{branch: t.root}
	if path != "" {
		target, ok := t.locate(path)
		if !ok {
			return fmt.Errorf("test operation does not apply: is missing path: %s: %w", path, errMissing)
		}
		if treeNode, err = target.get(); err != nil {
			return fmt.Errorf("error in test for path: '%s': %w", path, err)
		}
	}
	if _, hasValue := op["value"]; !hasValue && treeNode == nil {
		return fmt.Errorf("operation %d, test, has no value", i)
	}
	if !t.equal(treeNode, t.valueOf(op)) {
		return fmt.Errorf("testing value %s failed: %w", path, ErrTestFailed)
	}
	return nil
}
