package watchcache

import (
	"context"

	"binnacle/services/apiserver/internal/storage"
)

// lostEntry is an entry whose value cannot be read with the current configuration, and the one
// that takes its place.
type lostEntry struct {
	store      *Store
	was, entry *Entry
}

// reopen reads all values again. Some may have become unreadable. Reads of their objects
// fail from then on. Watchers already received these objects and continue. When a value has
// become readable instead, watchers have missed it: reopen returns *storage.CompactedError, so
// that the cache reloads everything. Nothing else applies changes meanwhile.
func (c *Cache) reopen(ctx context.Context) error {
	era := c.Era()
	var lost []lostEntry
	readable := false
	_, err := c.cfg.Source.Load(ctx, func(items []storage.KeyValue) error {
		r := c.routes.Load()
		for _, kv := range items {
			s := r.find(c.cfg.Root, kv.Key)
			if s == nil {
				continue
			}
			e, ok := s.Get(kv.Key)
			switch {
			case !ok || e.Revision != kv.ModRevision: // the change is still to come
			case kv.Unreadable() != nil: // maybe for a different reason than before
				entry := c.entry(s, kv)
				entry.damage.readable, entry.damage.neverReadable = e.LastReadable(), e.neverReadable()
				lost = append(lost, lostEntry{s, e, entry})
			case e.damage != nil && !e.damage.why.Undecodable && kv.Unreadable() == nil:
				readable = true
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if readable {
		return &storage.CompactedError{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Era() != era {
		return errReplaced
	}
	c.loads++
	for _, l := range lost {
		l.store.lose(l, c.loads)
	}
	for s := range c.routes.Load().all() {
		s.metrics.initializations.Add(1)
	}
	return nil
}

// lose replaces an entry whose value cannot be read any more, and forgets older states that have
// it. The caller holds Cache.mu.
func (s *Store) lose(l lostEntry, loads int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, _ := s.live.get(l.was.Key()); now != l.was {
		return
	}
	s.live.replace(l.was, l.entry)
	s.live.loads = loads
	s.published.Store(nil)
	s.dropImages(func(*keptImage) bool { return true })
	s.values.Store(s.live.stored)
	s.cache.ring.retire(l.was)
	s.cache.pinned.leave(l.was)
}
