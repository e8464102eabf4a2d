package lister

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
)

// entriesByCreation returns the entries of a kind, or those of a namespace if one is given, in
// order of creation, and their total size in bytes.
func entriesByCreation(k *CachedResource, s watchcache.Snapshot, namespace string) (entries []*objects.Entry, size int) {
	prefix := k.Prefix
	if namespace != "" {
		prefix += namespace + "/"
	}
	s.Ascend(prefix, "", func(e *objects.Entry) bool {
		entries = append(entries, e)
		size += e.Size()
		return true
	})
	slices.SortFunc(entries, func(a, b *objects.Entry) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) })
	return entries, size
}

// Stored returns the entries of a kind in a namespace, in order of creation, and their total size
// in bytes. It reads from the cache, which has all writes that this server has acknowledged.
func (o *Objects) Stored(
	ctx context.Context,
	k *CachedResource,
	namespace string,
) (entries []*objects.Entry, size int, err error) {
	if !o.Cache.Ready() {
		return nil, 0, watchcache.ErrNotReady
	}
	if err := k.WaitForWrites(ctx); err != nil {
		return nil, 0, err
	}
	entries, size = entriesByCreation(k, k.Store.Snapshot(), namespace)
	return entries, size, nil
}

// decodeAll decodes entries. It stops when the request ends.
func decodeAll[T registry.Object](ctx context.Context, kind *CachedResource, entries []*objects.Entry) (all []T, err error) {
	for _, e := range entries {
		if err := ctx.Err(); err != nil { // the request has ended
			return nil, err
		}
		obj, err := kind.Coder.DecodeStored(e.Stored(), e.Revision)
		if err != nil {
			return nil, err
		}
		t, err := asType[T](kind, e, obj)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

// asType returns an object as its Go type.
func asType[T registry.Object](k *CachedResource, e *objects.Entry, obj registry.Object) (T, error) {
	t, ok := obj.(T)
	if !ok {
		return t, fmt.Errorf("%s %q is a %T", k.Resource, e.Name(), obj)
	}
	return t, nil
}

// Memoized is a value that follows from all objects of a kind, such as the default among classes.
// It is computed again only after one of the objects has changed, so it is suitable for kinds that
// change rarely. It is safe for concurrent use.
type Memoized[T registry.Object, V any] struct {
	// Derive computes the value from all objects of Kind. It must not keep parts of the objects
	// that it changes.
	Objects *Objects
	Kind    CachedResource
	Derive  func(all []T) V

	mu       sync.Mutex
	computed bool
	version  objects.Version // that value follows from
	value    V
}

// Get returns the value for the state of the cache, which has all writes that this server has
// acknowledged.
func (m *Memoized[T, V]) Get(ctx context.Context) (V, error) {
	var none V
	if !m.Objects.Cache.Ready() {
		return none, watchcache.ErrNotReady
	}
	if err := m.Kind.WaitForWrites(ctx); err != nil {
		return none, err
	}
	snapshot := m.Kind.Store.Snapshot()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.computed && m.version == snapshot.Version() {
		return m.value, nil
	}
	entries, _ := entriesByCreation(&m.Kind, snapshot, "")
	all, err := decodeAll[T](ctx, &m.Kind, entries)
	if err != nil {
		return none, err
	}
	m.value = m.Derive(all)
	m.version = snapshot.Version()
	m.computed = true
	return m.value, nil
}

// Getter gets cluster-scoped objects of one kind.
type Getter[T registry.Object] struct {
	Objects *Objects
	Kind    CachedResource
}

// Get returns an object, or a NotFound error.
func (g *Getter[T]) Get(ctx context.Context, name string) (T, error) {
	return Get[T](ctx, g.Objects, &g.Kind, "", name)
}

// Classes is a Getter for a kind that may have a default object.
type Classes[T registry.Object, V any] struct {
	Getter[T]
	defaultObject *Memoized[T, V]
}

// NewClasses returns the objects of a kind. choose returns the default among them.
func NewClasses[T registry.Object, V any](o *Objects, k CachedResource, choose func([]T) V) *Classes[T, V] {
	return &Classes[T, V]{
		Getter:        Getter[T]{Objects: o, Kind: k},
		defaultObject: &Memoized[T, V]{Objects: o, Kind: k, Derive: choose},
	}
}

// Default returns the default.
func (c *Classes[T, V]) Default(ctx context.Context) (V, error) { return c.defaultObject.Get(ctx) }

// Decoder returns a function that decodes the stored objects of a kind.
func Decoder[T registry.Object](c *codec.KindCodec) func(stored []byte, revision int64) (T, error) {
	return func(stored []byte, revision int64) (t T, err error) {
		obj, err := c.DecodeStored(stored, revision)
		if err != nil {
			return t, err
		}
		t, ok := obj.(T)
		if !ok {
			return t, fmt.Errorf("%T is not a %T", obj, t)
		}
		return t, nil
	}
}

// EntryDecoder returns a function that decodes the entries of a kind.
func EntryDecoder[T registry.Object](c *codec.KindCodec) func(*objects.Entry) (T, error) {
	decode := Decoder[T](c)
	return func(e *objects.Entry) (T, error) { return decode(e.Stored(), e.Revision) }
}

// LastReadable returns a function that decodes an entry or, if it is corrupt, its last readable
// state.
func LastReadable(c *codec.KindCodec) func(*objects.Entry) (metav1.Object, error) {
	return func(e *objects.Entry) (metav1.Object, error) {
		if before := e.LastReadable(); before != nil {
			e = before
		}
		return c.DecodeStored(e.Stored(), e.Revision)
	}
}
