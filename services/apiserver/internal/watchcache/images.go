package watchcache

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// keptImage is an older state that was asked for and may be asked for again,
// by the next page of a list.
type keptImage struct {
	image *image
	// made and used are in nanoseconds of the cache's clock; used changes under
	// Store.mu.
	made, used int64
	// bytes is what nothing but the image keeps.
	bytes int64
}

const (
	// keepImages bounds the older states that a store keeps.
	keepImages = 8
	// keepImageFor is how long one is kept after it was last used.
	keepImageFor = 75 * time.Second
	// imagesShare is that of older states in the memory of all caches.
	imagesShare = 1
)

// SnapshotAt returns the state at exactly a revision, as long as the log
// reaches back to it. False means that the store itself has to be asked. pause, if set, is
// called where many changes have to be undone for it, as a Selection's is.
func (s *Store) SnapshotAt(revision int64, pause func() bool) (Snapshot, bool) {
	s = s.latest()
	now := s.cache.now()
	s.mu.Lock()
	applied := s.cache.Revision()
	if im := s.exactly(revision, now); im != nil {
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
	next := s.log.after(revision)
	im, end := s.nearest(next)
	im = im.copy()
	era := s.era.Load()
	s.mu.Unlock()
	for end > next {
		begin := max(next, end-min(end, lookedAtOnce))
		if !s.undo(im, begin, end, era) {
			return Snapshot{}, false
		}
		if end = begin; end == next || pause == nil {
			continue
		}
		if !pause() {
			return Snapshot{}, false
		}
		if same := s.made(revision, era); same != nil { // by somebody else meanwhile
			return Snapshot{store: s, image: same, revision: revision}, true
		}
	}
	im.last = revision
	im = s.keep(im, era)
	s.cache.cfg.Memory.Settle()
	return Snapshot{store: s, image: im, revision: revision}, true
}

// exactly returns the kept image that was made for the revision; it may be older
// than the log. The caller holds mu.
func (s *Store) exactly(revision, now int64) *image {
	for _, k := range s.kept {
		if k.image.last == revision && !s.stale(k, now) {
			k.used = max(k.used, now)
			return k.image
		}
	}
	return nil
}

// made is exactly of an era, for who has begun to make the image.
func (s *Store) made(revision int64, era uint64) *image {
	now := s.cache.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil || s.era.Load() != era {
		return nil
	}
	return s.exactly(revision, now)
}

// undo takes changes, from one number up to another, out of an image that nobody else has;
// false when the log does not have them any more.
func (s *Store) undo(im *image, begin, end uint64, era uint64) bool {
	s.mu.RLock()
	gone := s.era.Load() != era || s.ended != nil || begin < s.log.first
	changes := make([]*record, 0, end-begin)
	for seq := begin; !gone && seq < end; seq++ {
		changes = append(changes, s.log.at(seq))
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

// nearest is the image from which the fewest changes have to be undone to come to the one
// before record next: those up to end. The caller holds mu.
func (s *Store) nearest(next uint64) (im *image, end uint64) {
	im, end = s.live, s.log.next
	for _, k := range s.kept {
		if k.image.last < s.log.floor {
			continue
		}
		if after := s.log.after(k.image.last); after >= next && after < end {
			im, end = k.image, after
		}
	}
	return im, end
}

// keep remembers an image, in the place of the one that was used least recently
// when there are many, and returns it, or one of the same revision that is kept already.
func (s *Store) keep(im *image, era uint64) *image {
	now := s.cache.now() // it may have taken long to make
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil || s.era.Load() != era || im.last < s.log.floor {
		return im // meanwhile the history that it was made of is gone
	}
	if same := s.exactly(im.last, now); same != nil {
		return same
	}
	if len(s.kept) == keepImages {
		oldest := slices.MinFunc(s.kept, func(a, b *keptImage) int { return cmp.Compare(a.used, b.used) })
		s.dropImages(func(k *keptImage) bool { return k == oldest })
	}
	k := &keptImage{image: im, made: now, used: now, bytes: im.bytes()}
	s.kept = append(s.kept, k)
	s.cache.images.Add(k.bytes)
	return im
}

// stale tells whether an image has been kept for long enough. However often it is
// read, it is not kept longer than history, which could make it again until then.
func (s *Store) stale(k *keptImage, now int64) bool {
	return now-k.used > int64(keepImageFor) || now-k.made > int64(s.cache.cfg.LogAge)
}

// charge counts what a record that is forgotten leaves to images alone: the
// version before it. The caller holds mu.
func (s *Store) charge(r *record) {
	if r.prev == nil {
		return
	}
	for _, k := range s.kept {
		if k.image.last < r.revision && r.prev.Revision <= k.image.last {
			n := r.prev.sizeBeside(r.entry)
			k.bytes += n
			s.cache.images.Add(n)
		}
	}
}

// dropImages forgets images and returns how many bytes they took. The caller
// holds mu.
func (s *Store) dropImages(drop func(*keptImage) bool) (freed int64) {
	s.kept = slices.DeleteFunc(s.kept, func(k *keptImage) bool {
		if !drop(k) {
			return false
		}
		freed += k.bytes
		return true
	})
	s.cache.images.Add(-freed)
	return freed
}

// shrinkImages forgets images of all resources, the least recently used first,
// until so many bytes are free.
func (c *Cache) shrinkImages(bytes int64) (freed int64) {
	for freed < bytes {
		var in *Store
		oldest := int64(math.MaxInt64)
		for s := range c.routes.Load().all() {
			if used, ok := s.oldestImage(); ok && used < oldest {
				in, oldest = s, used
			}
		}
		if in == nil {
			return freed
		}
		in.mu.Lock()
		freed += in.dropImages(func(k *keptImage) bool { return k.used <= oldest })
		in.mu.Unlock()
	}
	return freed
}

// oldestImage is when the image was used that was so least recently.
func (s *Store) oldestImage() (used int64, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	used = math.MaxInt64
	for _, k := range s.kept {
		used, ok = min(used, k.used), true
	}
	return used, ok
}

// bytes is what an image's trees take beside the objects, at most.
func (im *image) bytes() int64 {
	const perObject = 24 // a place in a node that is not shared, and its part of the node
	return perObject * int64(im.entries.Len()) * int64(1+len(im.indexes)+len(im.labels))
}
