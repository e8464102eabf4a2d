package watchcache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchgroup"
	"binnacle/services/apiserver/internal/storage"
)

const (
	minBackoff = 5 * time.Millisecond
	maxBackoff = 5 * time.Second
	// cleanUpInterval is the interval of clean-ups of old history while nothing changes.
	cleanUpInterval = 30 * time.Second
)

// Run loads the cache and follows the source until ctx ends, which is no error. Then all watchers
// end. Run is called once.
func (c *Cache) Run(ctx context.Context) error {
	if c.started.Swap(true) {
		return errors.New("watch cache has been started before")
	}
	defer c.stop()
	g, inner := errgroup.WithContext(ctx)
	g.Go(func() error { return c.loadAndFollow(inner) })
	if c.config.LoadsHistory {
		g.Go(func() error { return c.becomeReady(inner) })
	}
	g.Go(func() error { return c.requestProgress(inner) })
	g.Go(func() error { return c.confirmHistory(inner) })
	g.Go(func() error { return c.cleanUp(inner) })
	g.Go(func() error { return c.expireLostWatchers(inner) })
	if err := g.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

// stop terminates all watchers after Run.
func (c *Cache) stop() {
	c.cancelLife()
	c.mu.Lock()
	defer c.mu.Unlock()
	var wakes []*watchgroup.Wake
	for s := range c.routes.Load().all() {
		wakes = s.terminate(ErrStopped, wakes)
	}
	watchgroup.WakeAll(wakes)
}

// loadAndFollow loads and follows until ctx ends. It reloads if the next revision has been
// compacted, or if the store's revision went backwards.
func (c *Cache) loadAndFollow(ctx context.Context) error {
	loaded := false
	wait := minBackoff
	for {
		// 1. Load or follow until an error occurs.
		var err error
		before, incarnation := c.position.get()
		if loaded {
			err = c.followSource(ctx, before, incarnation)
			if errors.As(err, new(*storage.ReopenedError)) {
				if err = c.reopen(ctx); err == nil {
					continue
				}
			}
		} else if err = c.load(ctx); err == nil {
			loaded = true
			wait = minBackoff
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}

		// 2. Decide whether the cache must load again.
		var compacted *storage.CompactedError
		if proof := asReplacedError(err); proof != nil {
			c.endIncarnation(incarnation, proof)
		}
		if errors.As(err, &compacted) || c.Incarnation() != incarnation {
			loaded = false
		}

		// 3. Wait. After progress, the backoff starts again.
		if now, _ := c.position.get(); now.Revision != before.Revision {
			wait = minBackoff
		}
		c.config.Logger.Warn("Watch cache lost its source", "revision", c.Revision(), "reload", !loaded, "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait/2 + rand.N(wait)):
		}
		wait = min(2*wait, maxBackoff)
	}
}

// followSource applies the changes after a position of an incarnation until the stream is lost or
// the incarnation ends.
func (c *Cache) followSource(ctx context.Context, from storage.Position, incarnation uint64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.mu.Lock()
	if c.Incarnation() != incarnation {
		c.mu.Unlock()
		return errReplaced
	}
	c.stopFollowing = cancel
	c.mu.Unlock()
	return c.config.Source.Follow(ctx, from, c.apply)
}

// apply makes a batch visible, first in the stores and then as the revision of the cache. Then it
// wakes the watchers that the batch concerns. It skips changes that were applied before.
func (c *Cache) apply(batch storage.Batch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reloading {
		return errReplaced
	}

	// 1. Decode the new values and distribute the events to their stores, as pending changes.
	applied := c.Revision()
	last := applied
	c.wakes = c.wakes[:0]
	if len(batch.Events) == 0 {
		c.metrics.progress.Add(1)
	}
	decoded := c.decodeInParallel(len(batch.Events), func(i int) (storage.KeyValue, bool) {
		ev := &batch.Events[i]
		return keyValueOf(ev), ev.Revision > applied && ev.Type != storage.Deleted
	})
	for i := range batch.Events {
		ev := &batch.Events[i]
		if ev.Revision <= applied {
			continue
		}
		if ev.Revision < last {
			c.dropPending()
			watchgroup.WakeAll(c.wakes)
			return fmt.Errorf("event of revision %d came after %d", ev.Revision, last)
		}
		last = ev.Revision
		c.distribute(c.routes.Load().storeOfKey(c.config.Root, ev.Key), ev, decoded, i)
	}

	// 2. Make the pending changes visible in the stores.
	now := c.now()
	for _, s := range c.changedStores {
		c.wakes = s.apply(now, c.wakes)
	}
	clear(c.changedStores)
	c.changedStores = c.changedStores[:0]

	// 3. Advance the revision of the cache and wake the watchers.
	last = max(last, batch.Revision)
	if last > applied {
		from, incarnation := c.position.get()
		c.position.set(from.Advance(storage.Batch{Events: batch.Events, Revision: last}), incarnation)
		c.revision.Store(last)
		c.revisionWaits.advance(last)
	}
	watchgroup.WakeAll(c.wakes)
	clear(c.wakes)

	// 4. Release memory.
	c.boundLogs()
	c.config.Memory.EvictToFit() // history may have taken memory from the caches
	return nil
}

// keyValueOf returns the value that an event other than a deletion leaves in the store.
func keyValueOf(ev *storage.Event) storage.KeyValue {
	return storage.KeyValue{Key: ev.Key, Value: ev.Value, ModRevision: ev.Revision, CreateRevision: ev.CreateRevision, Seal: ev.Seal}
}

// distribute makes an event a pending change of its store. The event is the i-th of those that
// decodeInParallel may have decoded. The caller holds mu.
func (c *Cache) distribute(store *Store, event *storage.Event, decoded []decodedEntry, i int) {
	keyValue := keyValueOf(event)
	deleted := event.Type == storage.Deleted
	if store == nil {
		if deleted {
			c.unclaimed.Delete(event.Key)
		} else {
			c.unclaimed.Set(event.Key, withoutSealDetails(keyValue))
		}
		return
	}
	if len(store.pending) == 0 {
		c.changedStores = append(c.changedStores, store)
	}
	ch := change{key: event.Key, revision: event.Revision}
	if !deleted {
		ch.entry = c.takeDecoded(decoded, i, store, keyValue)
	}
	store.pending = append(store.pending, ch)
	if store.resource.DefinedResource != nil {
		c.wakes = c.updateDefinition(&store.resource, event.Key, ch.entry, event.Revision, c.wakes)
	}
}

// dropPending discards a batch that cannot be applied. The caller holds mu.
func (c *Cache) dropPending() {
	for _, s := range c.changedStores {
		clear(s.pending)
		s.pending = s.pending[:0]
	}
	c.changedStores = c.changedStores[:0]
}

// cleanUp removes old history periodically until ctx ends.
func (c *Cache) cleanUp(ctx context.Context) error {
	t := time.NewTicker(cleanUpInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
			now := c.now()
			for s := range c.routes.Load().all() {
				s.cleanUp(now)
				s.compactDictionaries()
			}
		}
	}
}

// corruptEntry is an entry whose value cannot be read with the current configuration, and the
// another one that replaces it.
type corruptEntry struct {
	store           *Store
	previous, entry *objects.Entry
}

// reopen reads all values again after the configuration of their encryption changed. Reads of objects
// whose values are corrupt now fail from then on. Watchers already received these objects and
// continue. If a value has become readable, watchers have missed it: reopen returns
// *storage.CompactedError, so that the cache reloads everything. Nothing else applies changes during
// the call.
func (c *Cache) reopen(ctx context.Context) error {
	incarnation := c.Incarnation()
	var lost []corruptEntry
	becameReadable := false
	_, err := c.config.Source.Load(ctx, func(items []storage.KeyValue) error {
		r := c.routes.Load()
		for _, keyValue := range items {
			s := r.storeOfKey(c.config.Root, keyValue.Key)
			if s == nil {
				continue
			}
			e, ok := s.Get(keyValue.Key)
			switch {
			case !ok || e.Revision != keyValue.ModRevision: // the change is still to come
			case keyValue.Corrupt() != nil: // maybe for a different reason than before
				entry := c.makeEntry(s, keyValue)
				entry.RecordReadable(e.LastReadable(), e.NeverReadable())
				lost = append(lost, corruptEntry{s, e, entry})
			case e.IsCorrupt() && !e.Undecodable() && keyValue.Corrupt() == nil:
				becameReadable = true
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if becameReadable {
		return &storage.CompactedError{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Incarnation() != incarnation {
		return errReplaced
	}
	c.loads++
	for _, l := range lost {
		l.store.replaceCorrupt(l, c.loads)
	}
	for s := range c.routes.Load().all() {
		s.metrics.initializations.Add(1)
	}
	return nil
}

// replaceCorrupt replaces an entry whose value cannot be read any more, and forgets older states
// that have it. The caller holds Cache.mu.
func (s *Store) replaceCorrupt(lost corruptEntry, loads int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if current, _ := s.live.Get(lost.previous.Key()); current != lost.previous {
		return
	}
	s.live.Replace(lost.previous, lost.entry)
	s.live.Loads = loads
	s.published.Store(nil)
	s.dropImages(func(*cachedImage) bool { return true })
	s.values.Store(s.live.Stored)
	s.cache.releaseEntry(lost.previous)
}

// minParallelEntries is the number of values that a worker goroutine takes at a time.
const minParallelEntries = 64

// decodedEntry is an entry that was decoded in advance, with the store
// that its key belonged to at that time.
type decodedEntry struct {
	store *Store
	entry *objects.Entry
}

// decodeInParallel decodes the entries of n values in parallel. Decoding is most of the work of
// applying them. value returns the i-th value, and whether it must be decoded. For few values
// decodeInParallel returns nil, and the caller decodes them in order. It changes nothing in the cache.
func (c *Cache) decodeInParallel(n int, value func(int) (kv storage.KeyValue, wanted bool)) []decodedEntry {
	workers := min(runtime.GOMAXPROCS(0), n/minParallelEntries)
	if workers < 2 {
		return nil
	}
	out := make([]decodedEntry, n)
	decoding := c.routes.Load()
	var nextIndex atomic.Int64 // of the first value that no worker has taken
	work := func() {
		for {
			end := int(nextIndex.Add(minParallelEntries))
			start := end - minParallelEntries
			if start >= n {
				return
			}
			for i := start; i < min(end, n); i++ {
				kv, wanted := value(i)
				if !wanted {
					continue
				}
				if s := decoding.storeOfKey(c.config.Root, kv.Key); s != nil {
					out[i] = decodedEntry{s, c.decodeEntry(s, kv)}
				}
			}
		}
	}
	var others sync.WaitGroup
	for range workers - 1 {
		others.Go(work)
	}
	work()
	others.Wait()
	return out
}

// takeDecoded returns the i-th entry of decoded if it was decoded for store s, and decodes kv
// otherwise.
func (c *Cache) takeDecoded(decoded []decodedEntry, i int, s *Store, kv storage.KeyValue) *objects.Entry {
	if i < len(decoded) && decoded[i].store == s && decoded[i].entry != nil {
		return c.assignID(s, decoded[i].entry)
	}
	return c.makeEntry(s, kv)
}
