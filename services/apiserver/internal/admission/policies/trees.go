package policies

import (
	"strings"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// maxCachedTrees is the maximum number of cached decoded parameters.
	maxCachedTrees = 512
	// maxCachedBytes is the maximum total stored size of cached parameters in bytes. A tree of many
	// small values takes twenty times as much memory.
	maxCachedBytes = 4 << 20
	// maxCachedSize is the maximum stored size of a cached parameter in bytes. Large parameters are
	// rare, and one takes as much memory as all others.
	maxCachedSize = 64 << 10
	// maxSelectedSize is the maximum total size of the parameters that one binding selects for them
	// to be cached. More would evict each other before they are used again.
	maxSelectedSize = maxCachedBytes / 2
)

// treeKey identifies an object in one version of its kind, by its key in the store.
type treeKey struct {
	object string
	kind   schema.GroupVersionKind
}

// cachedTree is a decoded object. It does not reference the value from which it was decoded.
type cachedTree struct {
	tree map[string]any
	id   uint64 // of the entry; 0 for an entry that is not from the cache
	size int    // stored size in bytes
}

// trees is an LRU cache of decoded parameters.
type trees struct {
	mu    sync.Mutex
	byKey *simplelru.LRU[treeKey, cachedTree]
	bytes int
}

func newTrees() (*trees, error) {
	t := &trees{}
	var err error
	t.byKey, err = simplelru.NewLRU(maxCachedTrees, func(_ treeKey, old cachedTree) { t.bytes -= old.size })
	return t, err
}

// get returns the object as of one entry. It removes a cached object of another entry, which is
// stale.
func (t *trees) get(key treeKey, id uint64) (map[string]any, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	entry, ok := t.byKey.Get(key)
	if !ok {
		return nil, false
	}
	if entry.id != id {
		t.byKey.Remove(key)
		return nil, false
	}
	return entry.tree, true
}

// drop removes a deleted object.
func (t *trees) drop(key treeKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byKey.Remove(key)
}

// add caches an object unless it is large. To make room, it evicts the least recently used objects:
// deleted ones of the same kind, and as many others as necessary.
func (t *trees) add(key treeKey, entry cachedTree, exists func(object string) bool) {
	if entry.size > maxCachedSize || entry.id == 0 {
		return
	}
	key.object = strings.Clone(key.object) // the key is a slice of the entry's memory
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byKey.Remove(key) // another goroutine may have added it
	for {
		oldest, _, ok := t.byKey.GetOldest()
		if !ok || oldest.kind != key.kind || exists(oldest.object) {
			break
		}
		t.byKey.RemoveOldest()
	}
	t.bytes += entry.size
	t.byKey.Add(key, entry)
	for t.bytes > maxCachedBytes {
		t.byKey.RemoveOldest()
	}
}
