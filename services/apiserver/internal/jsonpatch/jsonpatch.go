// Package jsonpatch applies JSON patches (RFC 6902), those of clients, webhooks and policies.
//
// What operations mean is what gopkg.in/evanphx/json-patch.v4 has them mean, with which Kubernetes
// applies them: "replace" of a member that is not there adds it, indexes may count from the end,
// scalars are compared as they are written. What a patch takes grows with the document and the patch
// together, however deep they are and however many operations there are: texts are read once, only
// what paths go through becomes a tree, and that is written once.
package jsonpatch

import (
	"encoding/json"
	"errors"
	"fmt"

	"binnacle/services/apiserver/internal/customresource/tape"
)

// Patch is a list of operations.
type Patch []Operation

// Operation is one of them: its members by their names, nil for null.
type Operation map[string]*json.RawMessage

const (
	// MaxCopies is how many bytes the copies of a patch may take together.
	MaxCopies = 3 << 20
	// MaxMoved is how many elements of lists a patch may move from their places, for others that are
	// put in or taken out. It takes some 200 ms.
	MaxMoved = 50_000_000
	// maxDepth is how deep values may be nested meanwhile.
	maxDepth = tape.MaxDepth
)

// Errors of Apply, which may be wrapped.
var (
	// ErrTestFailed: a "test" did not hold.
	ErrTestFailed = errors.New("test failed")
	// ErrMoved: the patch moves more than MaxMoved.
	ErrMoved = fmt.Errorf("the operations move more than %d elements of lists", MaxMoved)

	errMissing = errors.New("missing value")
	errIndex   = errors.New("invalid index referenced")
	errDepth   = errors.New("exceeded max depth")
)

// Decode reads a patch.
func Decode(raw []byte) (p Patch, err error) {
	err = json.Unmarshal(raw, &p)
	return p, err
}

// Apply makes a document of another. Its errors are those of operations that cannot be applied.
func Apply(doc []byte, p Patch) ([]byte, error) {
	if len(doc) == 0 {
		return doc, nil
	}
	t := &tree{}
	defer t.release()
	root := t.read(doc)
	if root == nil || !t.open(root) {
		return nil, errors.New("the document is no JSON object or list")
	}
	t.root = root.tree
	for i, op := range p {
		if err := t.apply(i, op); err != nil {
			return nil, err
		}
	}
	return t.root.append(make([]byte, 0, len(doc))), nil
}

// text is a member of an operation that is a string.
func (o Operation) text(name string) (s string, err error) {
	raw := o[name]
	if raw == nil {
		return "", errMissing
	}
	err = json.Unmarshal(*raw, &s)
	return s, err
}

// Kind is what an operation does; "unknown" if it does not say.
func (o Operation) Kind() string {
	kind, err := o.text("op")
	if err != nil {
		return "unknown"
	}
	return kind
}

// path is what an operation is about; an error says that there is none.
func (o Operation) path() (string, error) {
	path, err := o.text("path")
	if errors.Is(err, errMissing) {
		err = fmt.Errorf("operation missing path field: %w", err)
	}
	return path, err
}

func (o Operation) from() (string, error) {
	from, err := o.text("from")
	if errors.Is(err, errMissing) {
		err = fmt.Errorf("operation, missing from field: %w", err)
	}
	return from, err
}

// value is that of an operation; none is null.
func (t *tree) value(o Operation) *node {
	if raw := o["value"]; raw != nil {
		return t.read(*raw)
	}
	return nil
}

func (t *tree) apply(i int, op Operation) error {
	switch kind := op.Kind(); kind {
	case "add":
		return t.add(op)
	case "remove":
		return t.remove(op)
	case "replace":
		return t.replace(i, op)
	case "move":
		return t.move(op)
	case "copy":
		return t.copy(op)
	case "test":
		return t.test(i, op)
	default:
		return fmt.Errorf("Unexpected kind: %s", kind) //nolint:staticcheck // the words that clients know
	}
}

func (t *tree) add(op Operation) error {
	path, err := op.path()
	if err != nil {
		return fmt.Errorf("add operation failed to decode path: %w", errMissing)
	}
	at, ok := t.find(path)
	if !ok {
		return fmt.Errorf("add operation does not apply: doc is missing path: \"%s\": %w", path, errMissing)
	}
	if err := t.put(at, t.value(op)); err != nil {
		return fmt.Errorf("error in add for path: '%s': %w", path, err)
	}
	return nil
}

func (t *tree) remove(op Operation) error {
	path, err := op.path()
	if err != nil {
		return fmt.Errorf("remove operation failed to decode path: %w", errMissing)
	}
	at, ok := t.find(path)
	if !ok {
		return fmt.Errorf("remove operation does not apply: doc is missing path: \"%s\": %w", path, errMissing)
	}
	if err := t.take(at); err != nil {
		return fmt.Errorf("error in remove for path: '%s': %w", path, err)
	}
	return nil
}

func (t *tree) replace(i int, op Operation) error {
	path, err := op.path()
	if err != nil {
		return fmt.Errorf("replace operation failed to decode path: %w", err)
	}
	if path == "" {
		if _, has := op["value"]; !has {
			return fmt.Errorf("operation %d, replace, has no value", i)
		}
		if n := t.value(op); n != nil && t.open(n) { // others change nothing
			t.root = n.tree
		}
		return nil
	}
	at, ok := t.find(path)
	if !ok {
		return fmt.Errorf("replace operation does not apply: doc is missing path: %s: %w", path, errMissing)
	}
	if _, err := at.get(); err != nil {
		return fmt.Errorf("replace operation does not apply: doc is missing key: %s: %w", path, errMissing)
	}
	if err := at.set(t.value(op)); err != nil {
		return fmt.Errorf("error in remove for path: '%s': %w", path, err)
	}
	return nil
}

func (t *tree) move(op Operation) error {
	from, err := op.from()
	if err != nil {
		return fmt.Errorf("move operation failed to decode from: %w", err)
	}
	at, ok := t.find(from)
	if !ok {
		return fmt.Errorf("move operation does not apply: doc is missing from path: %s: %w", from, errMissing)
	}
	n, err := at.get()
	if err == nil {
		err = t.take(at)
	}
	if err != nil {
		return fmt.Errorf("error in move for path: '%s': %w", at.key, err)
	}
	path, err := op.path()
	if err != nil {
		return fmt.Errorf("move operation failed to decode path: %w", err)
	}
	if at, ok = t.find(path); !ok {
		return fmt.Errorf("move operation does not apply: doc is missing destination path: %s: %w", path, errMissing)
	}
	if err := t.put(at, n); err != nil {
		return fmt.Errorf("error in move for path: '%s': %w", path, err)
	}
	return nil
}

func (t *tree) copy(op Operation) error {
	from, err := op.from()
	if err != nil {
		return fmt.Errorf("copy operation failed to decode from: %w", err)
	}
	at, ok := t.find(from)
	if !ok {
		return fmt.Errorf("copy operation does not apply: doc is missing from path: %s: %w", from, errMissing)
	}
	n, err := at.get()
	if err != nil {
		return fmt.Errorf("error in copy for from: '%s': %w", from, err)
	}
	path, err := op.path()
	if err != nil {
		return fmt.Errorf("copy operation failed to decode path: %w", errMissing)
	}
	if at, ok = t.find(path); !ok {
		return fmt.Errorf("copy operation does not apply: doc is missing destination path: %s: %w", path, errMissing)
	}
	if t.copied += n.size(); t.copied > MaxCopies {
		return fmt.Errorf("Unable to complete the copy, the accumulated size increase of copy is %d, exceeding the limit %d", //nolint:staticcheck // the words that clients know
			t.copied, MaxCopies)
	}
	if err := t.put(at, n.clone()); err != nil {
		return fmt.Errorf("error while adding value during copy: %w", err)
	}
	return nil
}

func (t *tree) test(i int, op Operation) error {
	path, err := op.path()
	if err != nil {
		return fmt.Errorf("test operation failed to decode path: %w", err)
	}
	n := &node{tree: t.root}
	if path != "" {
		at, ok := t.find(path)
		if !ok {
			return fmt.Errorf("test operation does not apply: is missing path: %s: %w", path, errMissing)
		}
		if n, err = at.get(); err != nil {
			return fmt.Errorf("error in test for path: '%s': %w", path, err)
		}
	}
	if _, has := op["value"]; !has && n == nil {
		return fmt.Errorf("operation %d, test, has no value", i)
	}
	if !t.equal(n, t.value(op)) {
		return fmt.Errorf("testing value %s failed: %w", path, ErrTestFailed)
	}
	return nil
}
