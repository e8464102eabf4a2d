package objects

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/watchcache"
)

// List decodes all objects of a kind, of one namespace where one is given, the
// oldest first. It reads the cache, which has what this server has acknowledged.
func List[T registry.Object](ctx context.Context, o *Objects, k *Kind, namespace string) ([]T, error) {
	if !o.Cache.Ready() {
		return nil, watchcache.ErrNotReady
	}
	if err := k.Seen(ctx); err != nil {
		return nil, err
	}
	prefix := k.Prefix
	if namespace != "" {
		prefix += namespace + "/"
	}
	snapshot, size := k.Store.Snapshot(), 0
	snapshot.Ascend(prefix, "", func(e *watchcache.Entry) bool {
		size += e.Size()
		return true
	})
	weigh(ctx, size)
	return decodeAll[T](k, snapshot, prefix)
}

func decodeAll[T registry.Object](k *Kind, s watchcache.Snapshot, prefix string) (all []T, err error) {
	var entries []*watchcache.Entry
	s.Ascend(prefix, "", func(e *watchcache.Entry) bool {
		entries = append(entries, e)
		return true
	})
	slices.SortFunc(entries, func(a, b *watchcache.Entry) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) })
	for _, e := range entries {
		obj, err := k.Coder.DecodeStored(e.Stored(), e.Revision)
		if err != nil {
			return nil, err
		}
		t, ok := obj.(T)
		if !ok {
			return nil, fmt.Errorf("%s %q is a %T", k.Resource, e.Name(), obj)
		}
		all = append(all, t)
	}
	return all, nil
}

// Derived is something that follows from all objects of a kind, such as the
// default among classes. It is made anew only after one of them changed, so it is
// meant for kinds that seldom change.
type Derived[T registry.Object, V any] struct {
	// Objects and Kind say what it follows from; Derive makes it, and must not
	// keep parts of the objects that it changes.
	Objects *Objects
	Kind    Kind
	Derive  func(all []T) V

	mu    sync.Mutex
	made  bool
	shown watchcache.Version
	value V
}

// Get returns what follows from the cache, which has what this server has
// acknowledged.
func (d *Derived[T, V]) Get(ctx context.Context) (V, error) {
	var none V
	if !d.Objects.Cache.Ready() {
		return none, watchcache.ErrNotReady
	}
	if err := d.Kind.Seen(ctx); err != nil {
		return none, err
	}
	s := d.Kind.Store.Snapshot()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.made && d.shown == s.Version() {
		return d.value, nil
	}
	all, err := decodeAll[T](&d.Kind, s, d.Kind.Prefix)
	if err != nil {
		return none, err
	}
	d.value, d.shown, d.made = d.Derive(all), s.Version(), true
	return d.value, nil
}
