package watchcache

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchgroup"
	"binnacle/services/apiserver/internal/storage"
)

// pendingLoad is a state that is being read while the previous one is served.
type pendingLoad struct {
	cache       *Cache
	incarnation uint64           // of the cache when the load began
	newest      storage.ChangeID // newest change among the values
	images      map[*Store]*objects.Image
	unclaimed   []storage.KeyValue // values without a store
}

// load reads everything and replaces the contents of the cache.
func (c *Cache) load(ctx context.Context) error {
	state := &pendingLoad{cache: c, incarnation: c.Incarnation(), images: map[*Store]*objects.Image{}}
	position, err := c.config.Source.Load(ctx, state.addPage)
	if err != nil {
		return fmt.Errorf("load watch cache: %w", err)
	}
	position.Last = state.newest
	position.ReadAt = position.Revision
	state.commit(position)
	return nil
}

// addPage adds values to the state. It reuses entries of versions that the cache already holds,
// with their encodings. After the store was replaced (Store.discarded), it reuses only stored
// values, not cached encodings.
func (l *pendingLoad) addPage(items []storage.KeyValue) error {
	cache := l.cache
	r := cache.routes.Load()
	var decoded []decodedEntry
	if cache.loads == 0 { // later loads find most entries in the cache
		decoded = cache.decodeInParallel(len(items), func(i int) (storage.KeyValue, bool) { return items[i], true })
	}
	for i, keyValue := range items {
		if keyValue.ModRevision > l.newest.Revision {
			l.newest = storage.ChangeIDOfValue(&items[i])
		}
		store := r.storeOfKey(cache.config.Root, keyValue.Key)
		if store == nil {
			l.unclaimed = append(l.unclaimed, withoutSealDetails(keyValue))
			continue
		}
		entry, ok := store.Get(keyValue.Key)
		previous := entry
		readable := ok && !entry.IsCorrupt() && keyValue.Corrupt() == nil
		unchanged := readable && entry.Revision == keyValue.ModRevision && entry.HasStored(keyValue.Value)
		switch {
		case unchanged && entry.Retired():
			keyValue.Value = entry.Stored()
			entry = cache.makeEntry(store, keyValue)
		case !unchanged:
			entry = cache.takeDecoded(decoded, i, store, keyValue)
		}
		if entry.IsCorrupt() {
			entry.RecordReadable(previous.LastReadable(), entry.NeverReadable())
		}
		l.addEntry(store, entry)
	}
	return nil
}

// addEntry adds an entry to the new image of a store.
func (l *pendingLoad) addEntry(s *Store, e *objects.Entry) {
	im := l.images[s]
	if im == nil {
		im = s.cache.newImage(&s.resource, l.incarnation)
		l.images[s] = im
	}
	im.Load(e)
	if im.Stored > s.values.Load() { // grows as values are added; never shrinks during a load
		s.values.Store(im.Stored)
	}
	s.pendingBytes.Store(0)
}

// commit replaces the contents of the cache by the loaded state, in these steps:
//
//  1. It adds and removes the resources that loaded entries define.
//  2. It assigns each value to the store that now has its key.
//  3. It replaces the contents of every store.
//  4. It publishes the revision and wakes the watchers.
func (l *pendingLoad) commit(position storage.Position) {
	cache, revision := l.cache, position.Revision
	cache.mu.Lock()
	defer cache.mu.Unlock()
	if cache.Incarnation() != l.incarnation {
		return // the store's revision went backwards during the load
	}
	pending := l.alignDefinitions(revision)
	cache.loads++
	l.assignValues()
	for s := range cache.routes.Load().all() {
		im := l.images[s]
		if im == nil {
			im = s.cache.newImage(&s.resource, l.incarnation)
		}
		im.Last = revision
		im.Loads = cache.loads
		s.metrics.stored.add(im.Len(), im.Len())
		pending = s.reset(im, revision, pending)
	}
	cache.position.set(position, l.incarnation)
	cache.revision.Store(revision)
	cache.revisionWaits.advance(revision)
	watchgroup.WakeAll(pending)
	if cache.reloading {
		cache.config.Logger.Info("loaded the current state of the store", "revision", revision)
	}
	if cache.reloading || !cache.config.LoadsHistory {
		cache.ready.set(true)
	}
	cache.reloading = false
	cache.loadedOnce.Do(func() { close(cache.loaded) })
}

// assignValues adds the loaded values to the stores that now have their keys, or to the unclaimed
// values. Keys are routed again, because commit may have added or removed resources since addPage
// routed them. The caller holds Cache.mu.
func (l *pendingLoad) assignValues() {
	cache := l.cache
	matching := cache.routes.Load()
	cache.unclaimed.Clear()
	for _, kv := range l.unclaimed {
		if s := matching.storeOfKey(cache.config.Root, kv.Key); s != nil {
			l.addEntry(s, cache.makeEntry(s, kv))
		} else {
			cache.unclaimed.Set(kv.Key, kv)
		}
	}
	for s, im := range l.images {
		if matching.withName(s.resource.Name) == s {
			continue
		}
		im.Scan(func(e *objects.Entry) bool {
			if current := matching.storeOfKey(cache.config.Root, e.Key()); current != nil {
				l.addEntry(current, cache.makeEntry(current, e.KeyValue()))
			} else {
				cache.keepUnclaimed(e)
			}
			return true
		})
	}
}

// setCurrent makes the cache ready unless it must reload.
func (c *Cache) setCurrent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reloading {
		c.ready.set(true)
	}
}

// becomeReady makes the cache ready once it contains everything that the store held after the load.
// The load may be at an older revision, because history is replayed from there.
func (c *Cache) becomeReady(ctx context.Context) error {
	select {
	case <-c.loaded:
	case <-ctx.Done():
		return ctx.Err()
	}
	for wait := minBackoff; ; wait = min(2*wait, maxBackoff) {
		_, err := c.MostRecent(ctx)
		if err == nil {
			c.setCurrent()
			return nil
		}
		c.config.Logger.Warn("watch cache is not up to date; retrying", "revision", c.Revision(), "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// updateDefinition adds, replaces or removes the resource that an entry defines, as of a revision.
// Keys that follow belong to the resource, and its history starts at the revision. The entry is nil
// if it was deleted. The caller holds mu and passes the returned wakes to WakeAll.
func (c *Cache) updateDefinition(
	definer *ResourceConfig,
	key string,
	entry *objects.Entry,
	revision int64,
	wakes []*watchgroup.Wake,
) []*watchgroup.Wake {
	// 1. Determine the resource that the entry defines.
	if entry != nil && entry.IsCorrupt() {
		return wakes // a corrupt definition leaves the resource as it is
	}
	var resourceConfig ResourceConfig
	defines := false
	if entry != nil {
		resourceConfig, defines = definer.DefinedResource(entry.Summary())
	}
	old := c.defined[key]
	if defines && old != nil && old.resource.equal(&resourceConfig) {
		return wakes
	}

	// 2. Remove the resource that was defined before.
	if old != nil {
		delete(c.defined, key)
		wakes = c.removeResource(old, wakes)
	}
	if !defines {
		if old != nil {
			old.gone.Store(true)
		}
		return wakes
	}

	// 3. Add the new one.
	s, err := c.addResource(resourceConfig, revision)
	if err != nil {
		if old != nil {
			old.gone.Store(true)
		}
		c.config.Logger.Error("failed to start watching a resource", "definition", key, "revision", revision, "error", err)
		return wakes
	}
	c.defined[key] = s
	if old != nil {
		old.replacement.Store(s) // callers that still hold the old store use this
	}
	return wakes
}

// alignDefinitions aligns the defined resources with a loaded state. The caller holds mu.
func (l *pendingLoad) alignDefinitions(revision int64) (wakes []*watchgroup.Wake) {
	cache := l.cache
	definers := map[*objects.Entry]*ResourceConfig{}
	defined := map[string]bool{}
	for s, im := range l.images {
		if s.resource.DefinedResource != nil {
			im.Scan(func(e *objects.Entry) bool {
				definers[e], defined[e.Key()] = &s.resource, true
				return true
			})
		}
	}
	for key := range cache.defined {
		if !defined[key] {
			wakes = cache.updateDefinition(nil, key, nil, revision, wakes)
		}
	}
	for e, r := range definers {
		wakes = cache.updateDefinition(r, e.Key(), e, revision, wakes)
	}
	return wakes
}

// addResource registers a resource and loads its unclaimed values. Its history starts at a
// revision. The caller holds mu.
func (c *Cache) addResource(resourceConfig ResourceConfig, revision int64) (*Store, error) {
	validPrefix := strings.HasPrefix(resourceConfig.Prefix, c.config.Root) && strings.HasSuffix(resourceConfig.Prefix, "/")
	if !validPrefix || resourceConfig.Attributes == nil || resourceConfig.Name == "" {
		return nil, fmt.Errorf("resource %q: prefix %q, attributes and name are required", resourceConfig.Name, resourceConfig.Prefix)
	}
	resourceConfig.Index = slices.Compact(slices.Sorted(slices.Values(resourceConfig.Index)))
	old := c.routes.Load()
	if old.overlaps(&resourceConfig) {
		return nil, &DuplicateError{Name: resourceConfig.Name, Prefix: resourceConfig.Prefix}
	}

	// 1. Create an empty store whose history starts at the revision.
	store := newStore(c, resourceConfig)
	if c.life.Err() != nil {
		store.ended = ErrStopped
	}
	store.discarded = c.reloading
	store.incarnation.Store(c.Incarnation())
	store.live.Last = revision
	store.log.Restart(revision, c.now())

	// 2. Load the values of its keys, which had no store so far.
	var claimed []string
	c.unclaimed.Ascend(resourceConfig.Prefix, func(key string, kv storage.KeyValue) bool {
		if !strings.HasPrefix(key, resourceConfig.Prefix) {
			return false
		}
		store.live.Load(c.makeEntry(store, kv))
		claimed = append(claimed, key)
		return true
	})
	for _, key := range claimed {
		c.unclaimed.Delete(key)
	}
	store.values.Store(store.live.Stored)
	store.pendingBytes.Store(0)
	c.routes.Store(old.with(store))
	return store, nil
}

// removeResource removes a resource after applying its pending changes. Its watchers end with
// ErrStopped. The caller holds mu.
func (c *Cache) removeResource(s *Store, wakes []*watchgroup.Wake) []*watchgroup.Wake {
	if i := slices.Index(c.changedStores, s); i >= 0 {
		c.changedStores = slices.Delete(c.changedStores, i, i+1)
		wakes = s.apply(c.now(), wakes)
	}
	c.routes.Store(c.routes.Load().without(s))
	wakes = s.terminate(ErrStopped, wakes)
	s.discardHistory()
	c.metrics.removeStore(s)
	s.mu.RLock() // Store.rebind may replace entries concurrently; it holds mu for writing
	defer s.mu.RUnlock()
	s.live.Scan(func(e *objects.Entry) bool {
		e.Retire()
		c.keepUnclaimed(e)
		return true
	})
	return wakes
}

// keepUnclaimed keeps the value of an entry whose resource left the cache. The caller holds mu.
func (c *Cache) keepUnclaimed(e *objects.Entry) { c.unclaimed.Set(e.Key(), e.KeyValue()) }

// withoutSealDetails returns kv with an empty Seal if kv is encrypted, so that unclaimed values do
// not hold key material. The Seal of a corrupt value is kept.
func withoutSealDetails(kv storage.KeyValue) storage.KeyValue {
	if kv.Seal != nil && kv.Seal.Err == nil {
		kv.Seal = &storage.Seal{}
	}
	return kv
}

// equal reports whether two definitions of a resource are equal.
func (r *ResourceConfig) equal(o *ResourceConfig) bool {
	return r.Name == o.Name && r.Prefix == o.Prefix && r.Variant == o.Variant
}

// latest returns the store itself, or the store that replaced it.
func (s *Store) latest() *Store {
	for n := s.replacement.Load(); n != nil; n = s.replacement.Load() {
		s = n
	}
	return s
}
