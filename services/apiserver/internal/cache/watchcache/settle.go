package watchcache

import (
	"slices"

	"binnacle/services/apiserver/internal/cache/valuedict"
)

// atOnce is how many entries are replaced under one lock.
const atOnce = 256

// worthKeeping is how many times its own memory a dictionary must save. A dictionary of values that
// have nothing in common any more saves as much as it takes.
const worthKeeping = 2

// settle releases unused memory of the dictionaries. It also empties the dictionary that saves
// least, if it blocks a new one and is not worth keeping.
func (s *Store) settle() {
	crowd := s.dictionaries.Compact(s.values.Load())
	if len(crowd) == 0 {
		return
	}
	saved := map[*valuedict.Dictionary]int64{} // only dictionaries in use
	im := s.Snapshot().image
	im.entries.Scan(func(e *Entry) bool {
		if b := e.dict(); b != nil && slices.Contains(crowd, b) {
			saved[b] += int64(e.Size() - len(e.stored))
		}
		return true
	})
	var least *valuedict.Dictionary
	for b, n := range saved {
		if least == nil || n < saved[least] {
			least = b
		}
	}
	if least == nil || saved[least] >= worthKeeping*least.Bytes() {
		return
	}
	var bound []*Entry
	im.entries.Scan(func(e *Entry) bool {
		if e.dict() == least {
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

// rebind replaces entries by equal ones with another dictionary. Entries that the log refers to
// stay until the log drops them.
func (s *Store) rebind(entries []*Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.abandoned || s.ended != nil {
		return
	}
	s.live.rebound++
	for _, e := range entries {
		if now, _ := s.live.get(e.Key()); now != e || s.log.reaches(e.Revision) {
			continue
		}
		other := e.at(e.Revision)
		other.id, other.stored, other.kept = e.id, asText(e.Stored()), s.cache.plain
		other.places.Store(e.places.Load())
		s.bind(other, s.live.stored)
		s.live.replace(e, other)
		s.cache.ring.drop(e) // a running load may put it back
		s.cache.pinned.leave(e)
	}
	s.published.Store(nil)
}
