package lister

import (
	"context"
	"strings"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
)

// Bounds limit the decoded objects that a CachedLister holds.
type Bounds struct {
	// Objects is the maximum number of objects.
	Objects int
	// Bytes is the maximum total size of the stored values of the objects. An object with many
	// small values takes twenty times as much memory decoded. A namespace of more than a quarter is
	// not cached: it would evict the objects of other namespaces, and its own before the next use.
	Bytes int
}

// CachedLister lists decoded objects of a namespace for callers that read them
// repeatedly, such as the plugins that every write in the namespace runs. It caches
// decoded objects within limits. It decodes objects beyond them at each use, one at a
// time, so that they need no memory. It is safe for concurrent use.
type CachedLister[T registry.Object] struct {
	objects *Objects
	kind    CachedResource
	decode  func(codec.Item) (registry.Object, error)
	bounds  Bounds

	mu    sync.Mutex
	byKey *simplelru.LRU[string, cachedObject[T]]
	bytes int
}

// cachedObject is a decoded object. It holds no reference to the stored value.
type cachedObject[T registry.Object] struct {
	object  T
	entryID uint64 // of the entry
	size    int    // of the stored value in bytes
}

// NewCachedLister returns a CachedLister of a kind whose objects have only the
// fields at the given paths (see codec.KindCodec.FieldsDecoder).
func NewCachedLister[T registry.Object](o *Objects, k CachedResource, b Bounds, paths ...string) (*CachedLister[T], error) {
	decode, err := k.Coder.FieldsDecoder(paths...)
	if err != nil {
		return nil, err
	}
	out := &CachedLister[T]{objects: o, kind: k, decode: decode, bounds: b}
	out.byKey, err = simplelru.NewLRU(b.Objects, func(_ string, old cachedObject[T]) { out.bytes -= old.size })
	return out, err
}

// Each calls visit for the objects of a namespace in order of creation, until visit fails or the
// request ends. The objects are shared and must not be changed. Large namespaces acquire the
// request's limit for large work first.
func (c *CachedLister[T]) Each(ctx context.Context, namespace string, visit func(T) error) error {
	entries, size, err := c.objects.Stored(ctx, &c.kind, namespace)
	if err != nil {
		return err
	}
	if err := request.Estimate(ctx, size); err != nil {
		return err
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil { // the request has ended
			return err
		}
		obj, err := c.objectOf(e, size <= c.bounds.Bytes/4)
		if err != nil {
			return err
		}
		if err := visit(obj); err != nil {
			return err
		}
	}
	return nil
}

// objectOf returns the object of an entry. It decodes an object that is not cached, and then caches
// it if keep is true.
func (c *CachedLister[T]) objectOf(e *objects.Entry, keep bool) (T, error) {
	c.mu.Lock()
	cached, ok := c.byKey.Get(e.Key())
	c.mu.Unlock()
	if ok && cached.entryID == e.ID() {
		return cached.object, nil
	}
	obj, err := c.decodeEntry(e)
	if err == nil {
		c.store(e, obj, keep)
	}
	return obj, err
}

// decodeEntry decodes the object of an entry.
func (c *CachedLister[T]) decodeEntry(e *objects.Entry) (none T, err error) {
	if err := e.Corrupt(); err != nil {
		return none, err
	}
	loan := e.Borrow()
	defer loan.Release()
	obj, err := c.decode(codec.Item{Stored: loan.Value, Revision: e.Revision})
	if err != nil {
		return none, err
	}
	return asType[T](&c.kind, e, obj)
}

// store replaces the cached previous version of an object, or only removes it if keep is false. It
// evicts the least recently used objects.
func (c *CachedLister[T]) store(e *objects.Entry, obj T, keep bool) {
	keep = keep && e.ID() != 0
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byKey.Remove(e.Key())
	if !keep {
		return
	}
	size := e.Size()
	c.bytes += size
	// The key of the entry shares memory with its other fields.
	c.byKey.Add(strings.Clone(e.Key()), cachedObject[T]{object: obj, entryID: e.ID(), size: size})
	for c.bytes > c.bounds.Bytes {
		c.byKey.RemoveOldest()
	}
}
