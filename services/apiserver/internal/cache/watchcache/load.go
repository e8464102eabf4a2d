package watchcache

import (
	"context"
	"fmt"
	"time"

	"binnacle/services/apiserver/internal/storage"
)

// loading is a state that is being read while another one is served.
type loading struct {
	cache     *Cache
	era       uint64
	newest    storage.Mark
	images    map[*Store]*image
	unclaimed []storage.KeyValue
}

// load reads everything and replaces the contents of the cache by it.
func (c *Cache) load(ctx context.Context) error {
	l := &loading{cache: c, era: c.Era(), images: map[*Store]*image{}}
	place, err := c.cfg.Source.Load(ctx, l.page)
	if err != nil {
		return fmt.Errorf("load watch cache: %w", err)
	}
	place.Last, place.ReadAt = l.newest, place.Revision
	l.commit(place)
	return nil
}

// page adds values to the state. It reuses entries of versions that the cache already holds, with
// their encodings. Of a discarded history it reuses only the values.
func (l *loading) page(items []storage.KeyValue) error {
	c := l.cache
	r := c.routes.Load()
	var ahead []made
	if c.loads == 0 { // later loads find most entries in the cache
		ahead = c.ahead(len(items), func(i int) (storage.KeyValue, bool) { return items[i], true })
	}
	for i, kv := range items {
		if kv.ModRevision > l.newest.Revision {
			l.newest = storage.MarkOfValue(&items[i])
		}
		s := r.find(c.cfg.Root, kv.Key)
		if s == nil {
			l.unclaimed = append(l.unclaimed, unclaimed(kv))
			continue
		}
		e, ok := s.Get(kv.Key)
		had := e
		switch same := ok && e.Revision == kv.ModRevision && e.has(kv.Value) && e.damage == nil && kv.Unreadable() == nil; {
		case same && e.retired():
			kv.Value = e.Stored()
			e = c.entry(s, kv)
		case !same:
			e = c.entryAhead(ahead, i, s, kv)
		}
		if e.damage != nil {
			e.damage.readable = had.LastReadable()
		}
		l.put(s, e)
	}
	return nil
}

func (l *loading) put(s *Store, e *Entry) {
	im := l.images[s]
	if im == nil {
		im = newImage(s.resource.Index, l.era)
		l.images[s] = im
	}
	im.load(e)
	if im.stored > s.values.Load() { // otherwise more values are still to come
		s.values.Store(im.stored)
	}
	s.coming.Store(0)
}

// commit makes the state and the resources that it defines the served ones.
func (l *loading) commit(place storage.Position) {
	c, revision := l.cache, place.Revision
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Era() != l.era {
		return // the store's revision went backwards meanwhile
	}
	fired := l.redefine(revision, nil)
	r := c.routes.Load()
	c.loads++
	c.unclaimed.Clear()
	for _, kv := range l.unclaimed {
		if s := r.find(c.cfg.Root, kv.Key); s != nil {
			l.put(s, c.entry(s, kv))
		} else {
			c.unclaimed.Set(kv.Key, kv)
		}
	}
	for s, im := range l.images {
		if r.named(s.resource.Name) == s {
			continue
		}
		im.entries.Scan(func(e *Entry) bool {
			if now := r.find(c.cfg.Root, e.Key()); now != nil {
				l.put(now, c.entry(now, e.keyValue()))
			} else {
				c.disclaim(e)
			}
			return true
		})
	}
	for s := range r.all() {
		im := l.images[s]
		if im == nil {
			im = newImage(s.resource.Index, l.era)
		}
		im.last, im.loads = revision, c.loads
		s.metrics.stored.add(im.entries.Len(), im.entries.Len())
		fired = s.reset(im, revision, fired)
	}
	c.position.set(place, l.era)
	c.revision.Store(revision)
	c.waits.advance(revision)
	release(fired)
	again := c.reloading
	c.reloading = false
	if again {
		c.cfg.Logger.Info("loaded the current state of the store", "revision", revision)
	}
	if again || !c.cfg.LoadsHistory {
		c.ready.set(true)
	}
	c.loadedOnce.Do(func() { close(c.loaded) })
}

// current makes the cache ready unless it must reload.
func (c *Cache) current() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reloading {
		c.ready.set(true)
	}
}

// becomeReady makes the cache ready once it shows what the store held after the load. The loaded
// state may be an older one, at which history begins.
func (c *Cache) becomeReady(ctx context.Context) error {
	select {
	case <-c.loaded:
	case <-ctx.Done():
		return ctx.Err()
	}
	for wait := minBackoff; ; wait = min(2*wait, maxBackoff) {
		_, err := c.MostRecent(ctx)
		if err == nil {
			c.current()
			return nil
		}
		c.cfg.Logger.Warn("Watch cache waits to be current", "revision", c.Revision(), "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}
