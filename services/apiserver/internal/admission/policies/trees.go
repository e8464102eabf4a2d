package policies

import (
	"strings"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// keptTrees is how many parameters are kept decoded.
	keptTrees = 512
	// keptBytes bounds them by what is stored of them, in bytes: a tree of many small values takes
	// twenty times as much.
	keptBytes = 4 << 20
	// largestKept is how large one is, as it is stored, that is kept: large ones are few, and take as
	// much as all others.
	largestKept = 64 << 10
	// keptTogether is how much those that one binding selects may be that are kept: of more, each would
	// have another go that is asked for sooner.
	keptTogether = keptBytes / 2
)

// treeKey is an object, by its key in the store, in one version of its kind.
type treeKey struct {
	object string
	kind   schema.GroupVersionKind
}

// keptTree is a decoded object. It does not keep alive what it was decoded from.
type keptTree struct {
	tree map[string]any
	id   uint64 // of the entry; 0 for one that is not the cache's
	size int    // of what is stored, in bytes
}

// trees are the parameters that were asked for last.
type trees struct {
	mu    sync.Mutex
	byKey *simplelru.LRU[treeKey, keptTree]
	bytes int
}

func newTrees() (*trees, error) {
	t := &trees{}
	var err error
	t.byKey, err = simplelru.NewLRU(keptTrees, func(_ treeKey, old keptTree) { t.bytes -= old.size })
	return t, err
}

// get finds an object as it is in one entry. What was decoded of another leaves: the object is not
// like that any more.
func (t *trees) get(key treeKey, id uint64) (map[string]any, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k, ok := t.byKey.Get(key)
	if !ok {
		return nil, false
	}
	if k.id != id {
		t.byKey.Remove(key)
		return nil, false
	}
	return k.tree, true
}

// drop forgets an object that is gone.
func (t *trees) drop(key treeKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byKey.Remove(key)
}

// add keeps an object, unless it is large. Those leave for it that were not asked for for longest:
// the ones of its kind that are not there any more, and as many others as there is no room for.
func (t *trees) add(key treeKey, k keptTree, there func(object string) bool) {
	if k.size > largestKept || k.id == 0 {
		return
	}
	key.object = strings.Clone(key.object) // which is a part of what an entry has
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byKey.Remove(key) // somebody else may have been quicker
	for {
		oldest, _, ok := t.byKey.GetOldest()
		if !ok || oldest.kind != key.kind || there(oldest.object) {
			break
		}
		t.byKey.RemoveOldest()
	}
	t.bytes += k.size
	t.byKey.Add(key, k)
	for t.bytes > keptBytes {
		t.byKey.RemoveOldest()
	}
}
