package watchcache

import (
	"fmt"
	"slices"
	"strings"

	"binnacle/services/apiserver/internal/storage"
)

// Entries of a resource may define other resources (Resource.Defines). A defined resource exists,
// under the same lock, before the next change is applied. So its history is complete from its
// definition on, on every replica and after a restart. A resource whose definition changes starts
// again: its watchers end, and callers that hold the former Store read the new one. Values that
// belong to no resource are kept until a resource claims them.

// define adds, replaces or removes the resource that an entry defines, as of a revision. Keys that
// follow belong to the resource, and its history begins at the revision. The entry is nil if it was
// deleted. The caller holds mu and releases all watchers that were woken.
func (c *Cache) define(by *Resource, key string, e *Entry, revision int64, fired []*wake) []*wake {
	var r Resource
	is := false
	if e != nil && e.damage != nil {
		return fired // an unreadable definition leaves the resource as it is
	}
	if e != nil {
		r, is = by.Defines(e.Outline())
	}
	had := c.defined[key]
	if is && had != nil && had.resource.same(&r) {
		return fired
	}
	if had != nil {
		delete(c.defined, key)
		fired = c.drop(had, fired)
	}
	if !is {
		if had != nil {
			had.gone.Store(true)
		}
		return fired
	}
	s, err := c.add(r, revision)
	if err != nil {
		if had != nil {
			had.gone.Store(true)
		}
		c.cfg.Logger.Error("failed to start watching a resource", "definition", key, "revision", revision, "error", err)
		return fired
	}
	c.defined[key] = s
	if had != nil {
		had.next.Store(s) // callers that still hold the former store use this
	}
	return fired
}

// redefine aligns the defined resources with a loaded state. The caller holds mu.
func (l *loading) redefine(revision int64, fired []*wake) []*wake {
	c := l.cache
	by, there := map[*Entry]*Resource{}, map[string]bool{}
	for s, im := range l.images {
		if s.resource.Defines != nil {
			im.entries.Scan(func(e *Entry) bool {
				by[e], there[e.Key()] = &s.resource, true
				return true
			})
		}
	}
	for key := range c.defined {
		if !there[key] {
			fired = c.define(nil, key, nil, revision, fired)
		}
	}
	for e, r := range by {
		fired = c.define(r, e.Key(), e, revision, fired)
	}
	return fired
}

// add registers a resource and loads the values that the store holds for it. Its history begins at
// a revision. The caller holds mu.
func (c *Cache) add(r Resource, revision int64) (*Store, error) {
	if !strings.HasPrefix(r.Prefix, c.cfg.Root) || !strings.HasSuffix(r.Prefix, "/") || r.Attributes == nil || r.Name == "" {
		return nil, fmt.Errorf("resource %q with prefix %q is not complete", r.Name, r.Prefix)
	}
	r.Index = slices.Compact(slices.Sorted(slices.Values(r.Index)))
	old := c.routes.Load()
	if old.overlaps(&r) {
		return nil, &DuplicateError{Name: r.Name, Prefix: r.Prefix}
	}
	s := newStore(c, r)
	if c.life.Err() != nil {
		s.ended = ErrStopped
	}
	s.abandoned = c.reloading
	s.era.Store(c.Era())
	s.live.last = revision
	s.log.restart(revision, c.now())
	var claimed []string
	c.unclaimed.Ascend(r.Prefix, func(key string, kv storage.KeyValue) bool {
		if !strings.HasPrefix(key, r.Prefix) {
			return false
		}
		s.live.load(c.entry(s, kv))
		claimed = append(claimed, key)
		return true
	})
	for _, key := range claimed {
		c.unclaimed.Delete(key)
	}
	s.values.Store(s.live.stored)
	s.coming.Store(0)
	c.routes.Store(old.with(s))
	return s, nil
}

// drop removes a resource after applying its pending changes. Its watchers end with ErrStopped. The
// caller holds mu.
func (c *Cache) drop(s *Store, fired []*wake) []*wake {
	if i := slices.Index(c.touched, s); i >= 0 {
		c.touched = slices.Delete(c.touched, i, i+1)
		fired = s.apply(c.now(), fired)
	}
	c.routes.Store(c.routes.Load().without(s))
	fired = s.end(ErrStopped, fired)
	s.discard()
	c.metrics.forget(s)
	s.mu.RLock() // for entries that rebind replaces by equal ones
	defer s.mu.RUnlock()
	s.live.entries.Scan(func(e *Entry) bool {
		c.ring.retire(e)
		c.disclaim(e)
		return true
	})
	return fired
}

// disclaim keeps the value of an entry whose resource left the cache. The caller holds mu.
func (c *Cache) disclaim(e *Entry) { c.unclaimed.Set(e.Key(), e.keyValue()) }

// unclaimed returns the form in which a value of no resource is kept. Of its seal it keeps only
// that the value is encrypted, or unreadable.
func unclaimed(kv storage.KeyValue) storage.KeyValue {
	if kv.Seal != nil && kv.Seal.Err == nil {
		kv.Seal = &storage.Seal{}
	}
	return kv
}

// same reports whether two definitions of a resource are equal.
func (r *Resource) same(o *Resource) bool {
	return r.Name == o.Name && r.Prefix == o.Prefix && r.Variant == o.Variant
}

// latest returns the store itself, or the store that replaced it.
func (s *Store) latest() *Store {
	for n := s.next.Load(); n != nil; n = s.next.Load() {
		s = n
	}
	return s
}
