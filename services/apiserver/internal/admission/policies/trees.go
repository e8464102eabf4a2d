package policies

import (
	"strings"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// maxCachedParameters is the maximum number of cached decoded parameters.
	maxCachedParameters = 512
	// maxCacheBytes is the maximum total stored size of cached parameters in bytes. A decoded parameter
	// of many small values takes up to twenty times as much memory.
	maxCacheBytes = 4 << 20
	// maxParameterBytes is the stored size in bytes above which a parameter is not cached. Large
	// parameters are rare, and a single one could take as much memory as all others.
	maxParameterBytes = 64 << 10
	// maxSelectionBytes is the total stored size in bytes above which the parameters that one binding
	// selects are not cached. They would evict each other before they are used again.
	maxSelectionBytes = maxCacheBytes / 2
)

// parameterKey identifies a parameter in one version of its kind.
type parameterKey struct {
	object string // key in the store
	kind   schema.GroupVersionKind
}

// cachedParameter is a decoded parameter. It does not reference the value from which it was decoded.
type cachedParameter struct {
	content map[string]any
	id      uint64 // objects.Entry.ID of the decoded entry; 0 if the entry has no ID
	size    int    // stored size in bytes
}

// parameterCache is an LRU cache of decoded parameters. It is safe for concurrent use.
type parameterCache struct {
	mu    sync.Mutex
	byKey *simplelru.LRU[parameterKey, cachedParameter]
	bytes int // total stored size of the cached parameters
}

func newParameterCache() (*parameterCache, error) {
	cache := &parameterCache{}
	var err error
	cache.byKey, err = simplelru.NewLRU(maxCachedParameters, func(_ parameterKey, old cachedParameter) { cache.bytes -= old.size })
	return cache, err
}

// get returns the cached parameter if it was decoded from the entry with an ID. Otherwise the cached
// parameter is outdated, and get removes it.
func (c *parameterCache) get(key parameterKey, id uint64) (map[string]any, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry, ok := c.byKey.Get(key)
	if !ok {
		return nil, false
	}
	if entry.id != id {
		c.byKey.Remove(key)
		return nil, false
	}
	return entry.content, true
}

// drop removes a parameter, which has been deleted in the store.
func (c *parameterCache) drop(key parameterKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byKey.Remove(key)
}

// add caches a parameter unless it is large. It first evicts the least recently used parameters while
// they are of the same kind and no longer exist, and then as many others as necessary. exists
// reports whether an object of the same kind exists in the store.
func (c *parameterCache) add(key parameterKey, entry cachedParameter, exists func(object string) bool) {
	if entry.size > maxParameterBytes || entry.id == 0 {
		return
	}
	key.object = strings.Clone(key.object) // do not retain the memory of the entry
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byKey.Remove(key) // another goroutine may have added it
	for {
		oldest, _, ok := c.byKey.GetOldest()
		if !ok || oldest.kind != key.kind || exists(oldest.object) {
			break
		}
		c.byKey.RemoveOldest()
	}
	c.bytes += entry.size
	c.byKey.Add(key, entry)
	for c.bytes > maxCacheBytes {
		c.byKey.RemoveOldest()
	}
}
