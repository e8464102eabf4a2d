package lister

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/registry"
)

// stored returns the entries of a kind, or those of a namespace if one is given, in order of
// creation, and their total size in bytes.
func stored(k *Kind, s watchcache.Snapshot, namespace string) (entries []*watchcache.Entry, size int) {
	prefix := k.Prefix
	if namespace != "" {
		prefix += namespace + "/"
	}
	s.Ascend(prefix, "", func(e *watchcache.Entry) bool {
		entries, size = append(entries, e), size+e.Size()
		return true
	})
	slices.SortFunc(entries, func(a, b *watchcache.Entry) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) })
	return entries, size
}

// Stored returns the entries of a kind in a namespace, in order of creation, and their total size
// in bytes. It reads from the cache, which has all writes that this server has acknowledged.
func (o *Objects) Stored(ctx context.Context, k *Kind, namespace string) (entries []*watchcache.Entry, size int, err error) {
	if !o.Cache.Ready() {
		return nil, 0, watchcache.ErrNotReady
	}
	if err := k.WaitForWrites(ctx); err != nil {
		return nil, 0, err
	}
	entries, size = stored(k, k.Store.Snapshot(), namespace)
	return entries, size, nil
}

// decodeAll decodes entries. It stops when the request ends.
func decodeAll[T registry.Object](ctx context.Context, k *Kind, entries []*watchcache.Entry) (all []T, err error) {
	for _, e := range entries {
		if err := ctx.Err(); err != nil { // the request has ended
			return nil, err
		}
		obj, err := k.Coder.DecodeStored(e.Stored(), e.Revision)
		if err != nil {
			return nil, err
		}
		t, err := as[T](k, e, obj)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

func as[T registry.Object](k *Kind, e *watchcache.Entry, obj registry.Object) (T, error) {
	t, ok := obj.(T)
	if !ok {
		return t, fmt.Errorf("%s %q is a %T", k.Resource, e.Name(), obj)
	}
	return t, nil
}

// Derived is a value that follows from all objects of a kind, such as the default among classes. It
// is computed again only after one of the objects has changed, so it is suitable for kinds that
// change rarely. It is safe for concurrent use.
type Derived[T registry.Object, V any] struct {
	// Derive computes the value from the objects of Kind. It must not keep parts of the objects
	// that it changes.
	Objects *Objects
	Kind    Kind
	Derive  func(all []T) V

	mu    sync.Mutex
	made  bool
	shown watchcache.Version
	value V
}

// Get returns the value for the state of the cache, which has all writes that this server has
// acknowledged.
func (d *Derived[T, V]) Get(ctx context.Context) (V, error) {
	var none V
	if !d.Objects.Cache.Ready() {
		return none, watchcache.ErrNotReady
	}
	if err := d.Kind.WaitForWrites(ctx); err != nil {
		return none, err
	}
	s := d.Kind.Store.Snapshot()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.made && d.shown == s.Version() {
		return d.value, nil
	}
	entries, _ := stored(&d.Kind, s, "")
	all, err := decodeAll[T](ctx, &d.Kind, entries)
	if err != nil {
		return none, err
	}
	d.value, d.shown, d.made = d.Derive(all), s.Version(), true
	return d.value, nil
}
