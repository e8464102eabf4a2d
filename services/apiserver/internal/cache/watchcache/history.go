package watchcache

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"binnacle/services/apiserver/internal/storage"
)

// cachedImage is an older state that was requested and may be requested again by the next page of a
// list.
type cachedImage struct {
	image *image
	// made and used are in nanoseconds of the cache's clock. used changes under Store.mu.
	made, used int64
	// bytes is the memory that only the image keeps alive.
	bytes int64
}

const (
	// keepImages bounds the older states that a store keeps.
	keepImages = 8
	// keepImageFor is how long an older state is kept after its last use.
	keepImageFor = 75 * time.Second
	// imagesShare is the weight of older states in the division of the memory of all caches.
	imagesShare = 1
)

// SnapshotAt returns the state at exactly a revision, as long as the log reaches back to it. False
// means that the caller must read the store. If pause is set, it is called while many changes are
// undone, as Selection.Pause is.
func (s *Store) SnapshotAt(revision int64, pause func() bool) (Snapshot, bool) {
	s = s.latest()
	now := s.cache.now()
	s.mu.Lock()
	applied := s.cache.Revision()
	if im := s.imageAt(revision, now); im != nil {
		s.mu.Unlock()
		return Snapshot{store: s, image: im, revision: revision}, true
	}
	if s.ended != nil || s.abandoned || revision < s.log.floor || revision > max(applied, s.live.last) {
		s.mu.Unlock()
		return Snapshot{}, false
	}
	if s.live.last <= revision {
		im := s.publish()
		s.mu.Unlock()
		return Snapshot{store: s, image: im, revision: revision}, true
	}
	next := s.log.firstAfter(revision)
	im, end := s.nearestImage(next)
	im = im.copy()
	era := s.era.Load()
	s.mu.Unlock()
	for end > next {
		begin := max(next, end-min(end, pauseInterval))
		if !s.revert(im, begin, end, era) {
			return Snapshot{}, false
		}
		end = begin
		if end == next || pause == nil {
			continue
		}
		if !pause() {
			return Snapshot{}, false
		}
		if existing := s.cachedImageAt(revision, era); existing != nil { // by another caller meanwhile
			return Snapshot{store: s, image: existing, revision: revision}, true
		}
	}
	im.last = revision
	im = s.keepImage(im, era)
	s.cache.cfg.Memory.Settle()
	return Snapshot{store: s, image: im, revision: revision}, true
}

// imageAt returns the kept image of the revision. It may be older than the log. The caller holds
// mu.
func (s *Store) imageAt(revision, now int64) *image {
	for _, cached := range s.cachedImages {
		if cached.image.last == revision && !s.isStale(cached, now) {
			cached.used = max(cached.used, now)
			return cached.image
		}
	}
	return nil
}

// cachedImageAt is imageAt within an era, for a caller that is building the image.
func (s *Store) cachedImageAt(revision int64, era uint64) *image {
	now := s.cache.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil || s.era.Load() != era {
		return nil
	}
	return s.imageAt(revision, now)
}

// revert reverts the changes from begin up to end in an image that only the caller has. It returns
// false if the log does not have them any more.
func (s *Store) revert(im *image, begin, end uint64, era uint64) bool {
	s.mu.RLock()
	gone := s.era.Load() != era || s.ended != nil || begin < s.log.first
	changes := make([]*record, 0, end-begin)
	for seq := begin; !gone && seq < end; seq++ {
		changes = append(changes, s.log.record(seq))
	}
	s.mu.RUnlock()
	if gone || slices.ContainsFunc(changes, (*record).reduced) {
		return false
	}
	for _, r := range slices.Backward(changes) {
		im.replace(r.entry, r.prev)
	}
	return true
}

// nearestImage returns the image that needs the fewest changes undone to reach the state before
// record next: the records from next up to end. The caller holds mu.
func (s *Store) nearestImage(next uint64) (im *image, end uint64) {
	im = s.live
	end = s.log.next
	for _, cached := range s.cachedImages {
		if cached.image.last < s.log.floor {
			continue
		}
		if after := s.log.firstAfter(cached.image.last); after >= next && after < end {
			im = cached.image
			end = after
		}
	}
	return im, end
}

// keepImage stores an image and returns it, or returns a kept image of the same revision. If
// keepImages are kept, it replaces the least recently used one.
func (s *Store) keepImage(im *image, era uint64) *image {
	now := s.cache.now() // making the image may have taken long
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil || s.era.Load() != era || im.last < s.log.floor {
		return im // the history behind the image is gone
	}
	if existing := s.imageAt(im.last, now); existing != nil {
		return existing
	}
	if len(s.cachedImages) == keepImages {
		oldest := slices.MinFunc(s.cachedImages, func(a, b *cachedImage) int { return cmp.Compare(a.used, b.used) })
		s.dropImages(func(cached *cachedImage) bool { return cached == oldest })
	}
	cached := &cachedImage{image: im, made: now, used: now, bytes: im.bytes()}
	s.cachedImages = append(s.cachedImages, cached)
	s.cache.images.Add(cached.bytes)
	return im
}

// isStale reports whether an image has been kept long enough. Even if it is read often, it is not
// kept longer than history, from which it could be made again until then.
func (s *Store) isStale(cached *cachedImage, now int64) bool {
	return now-cached.used > int64(keepImageFor) || now-cached.made > int64(s.cache.cfg.LogAge)
}

// chargeImages accounts for the previous version of a dropped record, which from now on only images
// keep alive. The caller holds mu.
func (s *Store) chargeImages(r *record) {
	if r.prev == nil {
		return
	}
	for _, cached := range s.cachedImages {
		if cached.image.last < r.revision && r.prev.Revision <= cached.image.last {
			n := r.prev.unsharedSize(r.entry)
			cached.bytes += n
			s.cache.images.Add(n)
		}
	}
}

// dropImages discards images and returns how many bytes they took. The caller holds mu.
func (s *Store) dropImages(drop func(*cachedImage) bool) (freed int64) {
	s.cachedImages = slices.DeleteFunc(s.cachedImages, func(cached *cachedImage) bool {
		if !drop(cached) {
			return false
		}
		freed += cached.bytes
		return true
	})
	s.cache.images.Add(-freed)
	return freed
}

// shrinkImages discards images of all resources, the least recently used first, until the given
// number of bytes is free.
func (c *Cache) shrinkImages(bytes int64) (freed int64) {
	for freed < bytes {
		var oldestStore *Store
		oldest := int64(math.MaxInt64)
		for s := range c.routes.Load().all() {
			if used, ok := s.oldestImage(); ok && used < oldest {
				oldestStore = s
				oldest = used
			}
		}
		if oldestStore == nil {
			return freed
		}
		oldestStore.mu.Lock()
		freed += oldestStore.dropImages(func(k *cachedImage) bool { return k.used <= oldest })
		oldestStore.mu.Unlock()
	}
	return freed
}

// oldestImage returns when the least recently used image was last used.
func (s *Store) oldestImage() (used int64, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	used = math.MaxInt64
	for _, cached := range s.cachedImages {
		used = min(used, cached.used)
		ok = true
	}
	return used, ok
}

// bytes returns an upper bound of the memory of an image's trees, without the objects.
func (im *image) bytes() int64 {
	const perObject = 24 // a slot in an unshared node, and its part of the node
	return perObject * int64(im.entries.Len()) * int64(1+len(im.indexes)+len(im.labels))
}

// olderTimeout bounds one read of a value that history dropped.
const olderTimeout = 10 * time.Second

// maxOlder is how many read values are remembered while a reader holds them.
const maxOlder = 64

// olderReads shares reads of values that history dropped. Watchers of the same objects often lag by
// the same amount.
type olderReads struct {
	made atomic.Uint64 // for metrics

	mu      sync.Mutex // no lock is taken under it
	running map[olderKey]*olderRead
	known   map[olderKey]weak.Pointer[Entry]
}

// olderKey identifies a version of an object.
type olderKey struct {
	key      string
	revision int64
}

// olderRead is a read in progress. entry and err are valid once done is closed.
type olderRead struct {
	done  chan struct{}
	entry *Entry
	err   error
}

// readOlder reads the value of an entry that the history has dropped from the store. If the store
// has compacted it, the error is *storage.CompactedError.
func (c *Cache) readOlder(ctx context.Context, e *Entry) (*Entry, error) {
	if c.cfg.Older == nil {
		return nil, &storage.CompactedError{}
	}
	k := olderKey{e.Key(), e.Revision}
	o := &c.olderReads
	o.mu.Lock()
	if p, ok := o.known[k]; ok {
		if known := p.Value(); known != nil {
			o.mu.Unlock()
			return known, nil
		}
	}
	read := o.running[k]
	if read == nil {
		read = &olderRead{done: make(chan struct{})}
		if o.running == nil {
			o.running = map[olderKey]*olderRead{}
			o.known = map[olderKey]weak.Pointer[Entry]{}
		}
		o.running[k] = read
		go c.completeOlderRead(k, e, read)
	}
	o.mu.Unlock()
	select {
	case <-read.done:
		return read.entry, read.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// completeOlderRead reads a version from the store and completes the read.
func (c *Cache) completeOlderRead(k olderKey, e *Entry, read *olderRead) {
	ctx, cancel := context.WithTimeout(c.life, olderTimeout)
	defer cancel()
	kv, _, err := c.cfg.Older.Get(ctx, k.key, k.revision)
	switch {
	case err == nil && kv.ModRevision == k.revision && kv.CreateRevision == e.CreateRevision:
		read.entry = e.withoutValue()
		read.entry.stored = asText(kv.Value)
	case err == nil || errors.Is(err, storage.ErrNotFound) ||
		errors.As(err, new(*storage.UnreadableError)): // not the history that was reported
		read.err = &storage.CompactedError{}
	default:
		read.err = err
	}
	c.olderReads.made.Add(1)
	c.olderReads.mu.Lock()
	defer c.olderReads.mu.Unlock()
	if c.olderReads.running[k] == read {
		delete(c.olderReads.running, k)
		if read.entry != nil {
			c.olderReads.remember(k, read.entry)
		}
	}
	close(read.done)
}

// forget discards completed and running reads of a discarded history.
func (o *olderReads) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.running)
	clear(o.known)
}

// remember remembers an entry weakly, as long as another reference holds it.
func (o *olderReads) remember(k olderKey, e *Entry) {
	if len(o.known) >= maxOlder {
		for k, p := range o.known {
			if p.Value() == nil {
				delete(o.known, k)
			}
		}
	}
	if len(o.known) < maxOlder {
		o.known[k] = weak.Make(e)
	}
}
