package apply

import (
	"bytes"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v4/typed"
)

// keptBytes is the maximum total size in bytes of encodings whose parsed sets are cached. A parsed
// set takes about ten times as much.
const keptBytes = 256 << 10

// setKey is the encoding of a field set of a kind.
type setKey struct {
	of  *view
	raw string
}

// keptSets caches recently parsed sets. Similar objects have equal sets. It is safe for concurrent
// use.
type keptSets struct {
	mu    sync.Mutex
	byKey *simplelru.LRU[setKey, fieldSet]
	bytes int
}

func newKeptSets() *keptSets {
	k := &keptSets{}
	const noLimit = 1 << 30 // limited by bytes instead
	k.byKey, _ = simplelru.NewLRU(noLimit, func(key setKey, _ fieldSet) { k.bytes -= len(key.raw) })
	return k
}

func (k *keptSets) get(key setKey) (fieldSet, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.byKey.Get(key)
}

func (k *keptSets) add(key setKey, s fieldSet) {
	if len(key.raw) > keptBytes/8 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byKey.Contains(key) {
		return
	}
	k.bytes += len(key.raw)
	k.byKey.Add(key, s)
	for k.bytes > keptBytes {
		k.byKey.RemoveOldest()
	}
}

// parse parses a set and reconciles it with the merge rules of the type, which may have changed
// since it was written. The result is shared.
func (v *view) parse(raw []byte) (fieldSet, error) {
	if v == nil { // a version that is not served
		return parseSet(raw)
	}
	key := setKey{v, string(raw)}
	if set, ok := v.fields.kept.get(key); ok {
		return set, nil
	}
	set, err := parseSet(raw)
	if err != nil {
		return fieldSet{}, err
	}
	t := v.typed()
	fitting, err := typed.ReconcileFieldSetWithSchema(set.Set, typed.AsTypedUnvalidated(nil, t.Schema, t.TypeRef))
	if err != nil {
		return fieldSet{}, err
	}
	if fitting != nil {
		set = fieldSet{Set: fitting}
		if set.raw, err = fitting.ToJSON(); err != nil {
			return fieldSet{}, err
		}
	}
	v.fields.kept.add(key, set)
	return set, nil
}

func parseSet(raw []byte) (fieldSet, error) {
	set := &fieldpath.Set{}
	if err := set.FromJSON(bytes.NewReader(raw)); err != nil {
		return fieldSet{}, err
	}
	canonical, err := set.ToJSON()
	return fieldSet{Set: set, raw: canonical}, err
}
