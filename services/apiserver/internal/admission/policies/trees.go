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
	// maxCachedBytes is the maximum total stored size of cached parameters in bytes. A decoded tree
	// of many small values takes up to twenty times as much memory.
	maxCachedBytes = 4 << 20
	// maxCachedSize is the stored size in bytes above which a parameter is not cached. Large
	// parameters are rare, and a single one could take as much memory as all others.
	maxCachedSize = 64 << 10
	// maxSelectedSize is the total stored size in bytes above which the parameters that one binding
	// selects are not cached. They would evict each other before they are used again.
	maxSelectedSize = maxCachedBytes / 2
)

// treeKey identifies an object in one version of its kind.
type treeKey struct {
	object string // key in the store
	kind   schema.GroupVersionKind
}

// cachedTree is a decoded object. It does not reference the value from which it was decoded.
type cachedTree struct {
	tree map[string]any
	id   uint64 // objects.Entry.ID of the decoded entry; 0 if the entry has no ID
	size int    // stored size in bytes
}

// trees is an LRU cache of decoded parameters. It is safe for concurrent use.
type trees struct {
	mu    sync.Mutex
	byKey *simplelru.LRU[treeKey, cachedTree]
	bytes int // total stored size of the cached parameters
}

func newTrees() (*trees, error) {
	t := &trees{}
	var err error
	t.byKey, err = simplelru.NewLRU(maxCachedTrees, func(_ treeKey, old cachedTree) { t.bytes -= old.size })
	return t, err
}

// get returns the cached object if it was decoded from the entry with an ID. Otherwise the cached
// object is outdated, and get removes it.
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

// drop removes an object, which has been deleted in the store.
func (t *trees) drop(key treeKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byKey.Remove(key)
}

// add caches an object unless it is large. It first evicts the least recently used objects while
// they are of the same kind and no longer exist, and then as many others as necessary. exists
// reports whether an object of the same kind exists in the store.
func (t *trees) add(key treeKey, entry cachedTree, exists func(object string) bool) {
	if entry.size > maxCachedSize || entry.id == 0 {
		return
	}
	key.object = strings.Clone(key.object) // do not retain the memory of the entry
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
