package watchcache

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/storage"
)

// cachedImage is an older state that was requested and may be requested again by the next page of a
// list.
type cachedImage struct {
	image *objects.Image
	// made and used are in nanoseconds of the cache's clock. used changes under Store.mu.
	made, used int64
	// bytes is the memory that only the image keeps alive.
	bytes int64
}

const (
	// maxKeptImages bounds the older states that a store keeps.
	maxKeptImages = 8
	// keptImageTTL is how long an older state is kept after its last use.
	keptImageTTL = 75 * time.Second
	// imagesShare is the weight of older states when the caches divide their memory.
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
	if image := s.imageAt(revision, now); image != nil {
		s.mu.Unlock()
		return Snapshot{store: s, image: image, revision: revision}, true
	}
	if s.ended != nil || s.discarded || revision < s.log.Floor || revision > max(applied, s.live.Last) {
		s.mu.Unlock()
		return Snapshot{}, false
	}
	if s.live.Last <= revision {
		image := s.publish()
		s.mu.Unlock()
		return Snapshot{store: s, image: image, revision: revision}, true
	}
	next := s.log.FirstAfter(revision)
	image, end := s.nearestImage(next)
	image = image.Copy()
	incarnation := s.incarnation.Load()
	s.mu.Unlock()
	for end > next {
		start := max(next, end-min(end, objects.PauseInterval))
		if !s.revert(image, start, end, incarnation) {
			return Snapshot{}, false
		}
		end = start
		if end == next || pause == nil {
			continue
		}
		if !pause() {
			return Snapshot{}, false
		}
		if existing := s.cachedImageAt(revision, incarnation); existing != nil { // created concurrently by another caller
			return Snapshot{store: s, image: existing, revision: revision}, true
		}
	}
	image.Last = revision
	image = s.keepImage(image, incarnation)
	s.cache.config.Memory.EvictToFit()
	return Snapshot{store: s, image: image, revision: revision}, true
}

// imageAt returns the kept image of the revision. It may be older than the log. The caller holds
// mu.
func (s *Store) imageAt(revision, now int64) *objects.Image {
	for _, cached := range s.cachedImages {
		if cached.image.Last == revision && !s.isStale(cached, now) {
			cached.used = max(cached.used, now)
			return cached.image
		}
	}
	return nil
}

// cachedImageAt is imageAt within an incarnation, for a caller that is building the image.
func (s *Store) cachedImageAt(revision int64, incarnation uint64) *objects.Image {
	now := s.cache.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil || s.incarnation.Load() != incarnation {
		return nil
	}
	return s.imageAt(revision, now)
}

// revert reverts the changes from begin up to end in an image that only the caller has. It returns
// false if the log does not have them any more.
func (s *Store) revert(image *objects.Image, begin, end uint64, incarnation uint64) bool {
	s.mu.RLock()
	removed := s.incarnation.Load() != incarnation || s.ended != nil || begin < s.log.First
	changes := make([]*objects.Record, 0, end-begin)
	for seq := begin; !removed && seq < end; seq++ {
		changes = append(changes, s.log.Record(seq))
	}
	s.mu.RUnlock()
	if removed || slices.ContainsFunc(changes, (*objects.Record).Reduced) {
		return false
	}
	for _, r := range slices.Backward(changes) {
		image.Replace(r.Entry, r.Prev)
	}
	return true
}

// nearestImage returns the image that needs the fewest changes undone to reach the state before
// record next: the records from next up to end. The caller holds mu.
func (s *Store) nearestImage(next uint64) (image *objects.Image, end uint64) {
	image = s.live
	end = s.log.Next
	for _, cached := range s.cachedImages {
		if cached.image.Last < s.log.Floor {
			continue
		}
		if after := s.log.FirstAfter(cached.image.Last); after >= next && after < end {
			image = cached.image
			end = after
		}
	}
	return image, end
}

// keepImage stores an image and returns it, or returns a kept image of the same revision. If
// maxKeptImages are kept, it replaces the least recently used one.
func (s *Store) keepImage(image *objects.Image, incarnation uint64) *objects.Image {
	now := s.cache.now() // making the image may have taken long
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil || s.incarnation.Load() != incarnation || image.Last < s.log.Floor {
		return image // the history behind the image is gone
	}
	if existing := s.imageAt(image.Last, now); existing != nil {
		return existing
	}
	if len(s.cachedImages) == maxKeptImages {
		oldest := slices.MinFunc(s.cachedImages, func(a, b *cachedImage) int { return cmp.Compare(a.used, b.used) })
		s.dropImages(func(cached *cachedImage) bool { return cached == oldest })
	}
	cached := &cachedImage{image: image, made: now, used: now, bytes: image.Bytes()}
	s.cachedImages = append(s.cachedImages, cached)
	s.cache.images.Add(cached.bytes)
	return image
}

// isStale reports whether an image has been kept long enough. Even if it is read often, it is not
// kept longer than history, from which it could be made again until then.
func (s *Store) isStale(cached *cachedImage, now int64) bool {
	return now-cached.used > int64(keptImageTTL) || now-cached.made > int64(s.cache.config.LogAge)
}

// chargeImages accounts for the previous version of a dropped record, which from now on only images
// keep alive. The caller holds mu.
func (s *Store) chargeImages(r *objects.Record) {
	if r.Prev == nil {
		return
	}
	for _, cached := range s.cachedImages {
		if cached.image.Last < r.Revision && r.Prev.Revision <= cached.image.Last {
			n := r.Prev.UnsharedSize(r.Entry)
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

// droppedReadTimeout bounds one read of a value that history dropped.
const droppedReadTimeout = 10 * time.Second

// History is kept for LogAge. When the logs of all resources together exceed their byte bound
// earlier than that, boundLogs reduces them in this order:
//
//  1. Large values are dropped, the oldest first. Their records stay, so every watcher can
//     continue. A watcher that needs such a value reads it from the store. The large objects of
//     one tenant do not cost other tenants their history.
//  2. The largest log drops its oldest records until it is as large as the second largest, and
//     so on. A resource that changes often does not cost other resources their history.
//
// slackPart is the fraction of the bound that is freed in addition to the excess.
const slackPart = 16

// boundLogs reduces the logs to their byte bound. The caller holds mu.
func (c *Cache) boundLogs() {
	excess := c.history.Used() - c.config.HistoryBytes
	if excess <= 0 {
		return
	}
	excess += c.config.HistoryBytes / slackPart
	sizes := make([]logSize, 0, 16)
	for s := range c.routes.Load().all() {
		if size := s.logSize(); size.bytes > 0 {
			sizes = append(sizes, size)
		}
	}
	excess = dropLargestValues(sizes, excess)
	shrinkLargestLogs(sizes, excess, c.now())
}

// dropLargestValues drops large values until excess bytes are free. It starts with the logs that have
// the most bytes in large values. It returns the remaining excess and updates sizes.
func dropLargestValues(sizes []logSize, excess int64) int64 {
	slices.SortFunc(sizes, func(a, b logSize) int { return cmp.Compare(b.largeBytes, a.largeBytes) })
	for i := 0; i < len(sizes) && sizes[i].largeBytes > 0 && excess > 0; i++ {
		freed := sizes[i].store.dropLargeValues(excess)
		excess -= freed
		sizes[i].bytes -= freed
	}
	return excess
}

// shrinkLargestLogs drops the oldest records of the largest logs until excess bytes are free.
func shrinkLargestLogs(sizes []logSize, excess, now int64) {
	slices.SortFunc(sizes, func(a, b logSize) int { return cmp.Compare(b.bytes, a.bytes) })
	for i := range sizes {
		if excess <= 0 {
			return
		}
		// The i+1 largest logs shrink to the size of the next one, or as far as needed.
		level := int64(0)
		if i+1 < len(sizes) {
			level = sizes[i+1].bytes
		}
		for j := range i + 1 {
			share := (excess + int64(i-j)) / int64(i-j+1)
			if above := min(share, sizes[j].bytes-level); above > 0 {
				freed := sizes[j].store.dropOldest(above, now)
				excess -= freed
				sizes[j].bytes -= freed
			}
		}
	}
}

// logSize is the memory that a log keeps alive, in bytes.
type logSize struct {
	store             *Store
	bytes, largeBytes int64
}

func (s *Store) logSize() logSize {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return logSize{s, s.log.Bytes, s.log.LargeBytes}
}

// dropOldest drops the oldest records that together hold at least the given number of bytes. It
// returns how many bytes it freed.
func (s *Store) dropOldest(bytes, now int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.log.Bytes
	n, remaining := 0, before
	for n < s.log.Len() && before-remaining < bytes {
		remaining -= s.log.Record(s.log.First + uint64(n)).Size()
		n++
	}
	s.dropRecords(n)
	if now-s.log.FloorAt < int64(s.cache.config.LogAge) {
		s.metrics.forgottenEarly.Add(uint64(n))
	}
	s.log.Shrink()
	return before - s.log.Bytes
}

// dropLargeValues drops large values, the oldest first, until the given number of bytes is free or
// none are left. It returns how many bytes it freed.
func (s *Store) dropLargeValues(bytes int64) (freed int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.log.Bytes
	s.log.NextToReduce = max(s.log.NextToReduce, s.log.First)
	for s.log.NextToReduce < s.log.Next && before-s.log.Bytes < bytes {
		seq := s.log.NextToReduce
		s.log.NextToReduce++
		r := s.log.Record(seq)
		if r.LargeBytes() == 0 {
			continue
		}
		s.chargeImages(r)
		s.replaceVersion(seq, r.Prev.WithoutValue())
		s.metrics.reduced.Add(1)
	}
	freed = before - s.log.Bytes
	s.cache.history.Add(-freed)
	s.scheduleLostCheck()
	return freed
}

// replaceVersion replaces the version before a record's change by a reduced one, in that record and
// in the record that created the version. The caller holds mu.
func (s *Store) replaceVersion(seq uint64, reduced *objects.Entry) {
	r := s.log.Record(seq)
	if created, ok := s.log.CreatorOf(r.Prev); ok {
		creator := s.log.Record(created)
		s.log.Replace(created, creator.WithVersions(reduced, creator.Prev))
		creator.RetireTombstones()
	}
	s.log.Replace(seq, r.WithVersions(r.Entry, reduced))
	s.cache.releaseEntry(r.Prev)
	r.RetireTombstones()
}

// readDroppedFromStore reads a value that the history has dropped from the store. If the store has
// compacted it, the error is *storage.CompactedError.
func (c *Cache) readDroppedFromStore(e *objects.Entry) (value []byte, err error) {
	ctx, cancel := context.WithTimeout(c.life, droppedReadTimeout)
	defer cancel()
	kv, _, err := c.config.HistoryReader.Get(ctx, e.Key(), e.Revision)
	switch {
	case err == nil && kv.ModRevision == e.Revision && kv.CreateRevision == e.CreateRevision:
		return kv.Value, nil
	case err == nil || errors.Is(err, storage.ErrNotFound) ||
		errors.As(err, new(*storage.CorruptObjectError)): // not the history that was reported
		return nil, &storage.CompactedError{}
	}
	return nil, err
}

// restoreDroppedValue returns an entry with its value, which the history has dropped. If the store
// has compacted it, the error is *storage.CompactedError.
func (c *Cache) restoreDroppedValue(ctx context.Context, e *objects.Entry) (*objects.Entry, error) {
	if c.config.HistoryReader == nil {
		return nil, &storage.CompactedError{}
	}
	return c.historyReads.Get(ctx, e)
}
