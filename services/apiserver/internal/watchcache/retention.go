package watchcache

import (
	"slices"
	"time"
)

// keptImage is an older state that was asked for and may be asked for again,
// by the next page of a list.
type keptImage struct {
	image *image
	used  int64 // nanoseconds of the cache's clock
}

const (
	// keepImages bounds the older states that a store keeps.
	keepImages = 8
	// keepImageFor is how long one is kept after it was last used.
	keepImageFor = 75 * time.Second
	// warmEvents is how many changes ago an object must have been replaced for
	// its encodings to be given up. Watchers that are further behind make them
	// again.
	warmEvents = 256
	// minLogEvents stay in a log however old they are.
	minLogEvents = 100
)

// SnapshotAt returns the state at exactly a revision, as long as the log
// reaches back to it. False means that the store itself has to be asked.
func (s *Store) SnapshotAt(revision int64) (Snapshot, bool) {
	applied := s.cache.Revision()
	now := s.cache.now()
	s.mu.Lock()
	if im := s.exactly(revision, now); im != nil {
		s.mu.Unlock()
		return Snapshot{store: s, image: im, revision: revision}, true
	}
	if s.ended != nil || revision < s.log.floor || revision > max(applied, s.live.last) {
		s.mu.Unlock()
		return Snapshot{}, false
	}
	if s.live.last <= revision {
		im := s.publish()
		s.mu.Unlock()
		return Snapshot{store: s, image: im, revision: revision}, true
	}
	next := s.log.after(revision)
	im, undo := s.nearest(next)
	s.mu.Unlock()

	for _, r := range slices.Backward(undo) {
		im.replace(s.resource.Index, r.entry, r.prev)
	}
	im.last = revision
	s.mu.Lock()
	s.keep(im, now)
	s.mu.Unlock()
	return Snapshot{store: s, image: im, revision: revision}, true
}

// exactly returns the kept image that was made for the revision; it may be older
// than the log. The caller holds mu.
func (s *Store) exactly(revision, now int64) *image {
	for i := range s.kept {
		if k := &s.kept[i]; k.image.last == revision {
			k.used = now
			return k.image
		}
	}
	return nil
}

// nearest copies the image from which the fewest changes have to be undone to
// come to the one before record next, and returns those changes. The caller
// holds mu.
func (s *Store) nearest(next uint64) (*image, []*record) {
	im, end := s.live, s.log.next
	for _, k := range s.kept {
		if k.image.last < s.log.floor {
			continue
		}
		if after := s.log.after(k.image.last); after >= next && after < end {
			im, end = k.image, after
		}
	}
	undo := make([]*record, 0, end-next)
	for seq := next; seq < end; seq++ {
		undo = append(undo, s.log.at(seq))
	}
	return im.copy(), undo
}

// keep remembers an image in the place of the one that was used least recently.
// The caller holds mu.
func (s *Store) keep(im *image, now int64) {
	if len(s.kept) == keepImages {
		oldest := 0
		for i := range s.kept {
			if s.kept[i].used < s.kept[oldest].used {
				oldest = i
			}
		}
		s.kept = slices.Delete(s.kept, oldest, oldest+1)
	}
	s.kept = append(s.kept, keptImage{im, now})
}

// makeRoom forgets what is too old, or too much for one more record. The caller
// holds mu.
func (s *Store) makeRoom(now int64) {
	n := max(0, s.log.len()+1-s.cache.cfg.LogEvents)
	for s.log.len()-n > minLogEvents && now-s.log.at(s.log.first+uint64(n)).at > int64(s.cache.cfg.LogAge) {
		n++
	}
	s.forget(n)
}

// forget evicts the n oldest records. What they kept alive needs its encodings
// no more. The caller holds mu.
func (s *Store) forget(n int) {
	if n == 0 {
		return
	}
	bytes := s.log.bytes
	for range n {
		r := s.log.evict()
		s.cache.budget.drop(r.prev)
		s.cache.budget.drop(r.tomb.Load())
	}
	s.cache.logBytes.Add(s.log.bytes - bytes)
}

// tidy does what is due without changes: it forgets what is too old and gives
// memory back.
func (s *Store) tidy(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.makeRoom(now)
	s.log.shrink()
	s.kept = slices.DeleteFunc(s.kept, func(k keptImage) bool {
		return now-k.used > int64(keepImageFor)
	})
}

// logSize is the memory that the log keeps alive.
func (s *Store) logSize() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.log.bytes
}

// halve forgets records until the log is half its size, and returns how much
// smaller it is.
func (s *Store) halve() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.log.bytes
	n, left := 0, was
	for n < s.log.len() && left > was/2 {
		left -= s.log.at(s.log.first + uint64(n)).size()
		n++
	}
	s.forget(n)
	s.log.shrink()
	return was - s.log.bytes
}

// cool gives up the encodings of what was replaced a while ago. The caller holds
// mu and has appended a record.
func (s *Store) cool() {
	if s.log.len() <= warmEvents {
		return
	}
	r := s.log.at(s.log.next - 1 - warmEvents)
	s.cache.budget.drop(r.prev)
	s.cache.budget.drop(r.tomb.Load())
}

// discard forgets the log of a store that is no longer used.
func (s *Store) discard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(s.log.len())
	s.log.shrink()
	s.kept = nil
}
