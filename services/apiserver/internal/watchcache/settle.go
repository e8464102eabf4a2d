package watchcache

import (
	"slices"

	"binnacle/services/apiserver/internal/phrases"
)

// atOnce is how many entries are replaced under one lock.
const atOnce = 256

// worthKeeping is how many times what it takes a book has to save: that of values which have nothing
// in common any more saves as much as it takes.
const worthKeeping = 2

// settle gives back what the shelf does not need, and empties the book that saves least when it
// stands in the way of a new one and is not worth keeping.
func (s *Store) settle() {
	crowd := s.shelf.Tidy(s.values.Load())
	if len(crowd) == 0 {
		return
	}
	saved := map[*phrases.Book]int64{} // of those that something is packed with
	im := s.Snapshot().image
	im.entries.Scan(func(e *Entry) bool {
		if b := e.book(); b != nil && slices.Contains(crowd, b) {
			saved[b] += int64(e.Size() - len(e.stored))
		}
		return true
	})
	var least *phrases.Book
	for b, n := range saved {
		if least == nil || n < saved[least] {
			least = b
		}
	}
	if least == nil || saved[least] >= worthKeeping*least.Takes() {
		return
	}
	var bound []*Entry
	im.entries.Scan(func(e *Entry) bool {
		if e.book() == least {
			bound = append(bound, e)
		}
		return true
	})
	for len(bound) > 0 {
		n := min(atOnce, len(bound))
		s.rebind(bound[:n])
		bound = bound[n:]
	}
}

// rebind puts entries in the place of others that are the same but for the book. What the log
// tells of stays: it will be forgotten.
func (s *Store) rebind(entries []*Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.abandoned || s.ended != nil {
		return
	}
	s.live.rebound++
	for _, e := range entries {
		if now, _ := s.live.get(e.Key()); now != e || s.log.tells(e.Revision) {
			continue
		}
		other := e.at(e.Revision)
		other.id, other.stored, other.kept = e.id, asText(e.Stored()), s.cache.plain
		other.places.Store(e.places.Load())
		s.bind(other, s.live.stored)
		s.live.replace(e, other)
		s.cache.ring.drop(e) // a load that goes on may put it back
		s.cache.pinned.leave(e)
	}
	s.published.Store(nil)
}
