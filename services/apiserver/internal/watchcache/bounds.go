package watchcache

import (
	"cmp"
	"slices"
)

// History is kept for LogAge. When the logs of all resources exceed their bound of
// bytes before that, it is kept within it in this order:
//
//  1. Large values are given up, the oldest first. The records stay, so everybody
//     can still go on from them; who needs such a value reads it from the store.
//     One tenant's large objects cost nobody else's history.
//  2. The largest log forgets its oldest records, down to the second largest, and
//     so on: a resource that changes much costs no other resource its history.
const (
	// largeValue is the least size of what is given up alone, in bytes.
	largeValue = 16 << 10
	// slackPart is the part of the bound that is freed at a time beyond what has
	// to be.
	slackPart = 16
)

// boundLogs lets the logs keep their bound. The caller holds mu.
func (c *Cache) boundLogs() {
	over := c.history.Used() - c.cfg.HistoryBytes
	if over <= 0 {
		return
	}
	over += c.cfg.HistoryBytes / slackPart
	sizes := make([]logSize, 0, 16)
	for s := range c.routes.Load().all() {
		if n := s.logSize(); n.bytes > 0 {
			sizes = append(sizes, n)
		}
	}
	slices.SortFunc(sizes, func(a, b logSize) int { return cmp.Compare(b.large, a.large) })
	for i := 0; i < len(sizes) && sizes[i].large > 0 && over > 0; i++ {
		freed := sizes[i].store.reduce(over)
		over -= freed
		sizes[i].bytes -= freed
	}
	slices.SortFunc(sizes, func(a, b logSize) int { return cmp.Compare(b.bytes, a.bytes) })
	now := c.now()
	for i := range sizes {
		if over <= 0 {
			return
		}
		// The i+1 largest come down to the level of the next, or as far as need be.
		level := int64(0)
		if i+1 < len(sizes) {
			level = sizes[i+1].bytes
		}
		for j := range i + 1 {
			share := (over + int64(i-j)) / int64(i-j+1)
			if excess := min(share, sizes[j].bytes-level); excess > 0 {
				freed := sizes[j].store.shed(excess, now)
				over -= freed
				sizes[j].bytes -= freed
			}
		}
	}
}

// logSize is what a log keeps alive.
type logSize struct {
	store        *Store
	bytes, large int64
}

func (s *Store) logSize() logSize {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return logSize{s, s.log.bytes, s.log.large}
}

// shed forgets the oldest records that together have so many bytes, and returns
// how many it freed.
func (s *Store) shed(bytes, now int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.log.bytes
	n, left := 0, was
	for n < s.log.len() && was-left < bytes {
		left -= s.log.at(s.log.first + uint64(n)).size()
		n++
	}
	s.forget(n)
	if now-s.log.floorAt < int64(s.cache.cfg.LogAge) {
		s.metrics.forgottenEarly.Add(uint64(n))
	}
	s.log.shrink()
	return was - s.log.bytes
}

// reduced tells whether the version before the change is not there whole.
func (r *record) reduced() bool { return r.prev != nil && !r.prev.whole() }

// large is the size of the record's value if it is large and whole.
func (r *record) large() int64 {
	if r.prev == nil || len(r.prev.stored) < largeValue {
		return 0
	}
	return int64(len(r.prev.stored))
}

// whole tells whether the entry has its value. Entries of history alone may have
// given it up; only those do not keep encodings.
func (e *Entry) whole() bool { return e.stored != "" || e.ring() != nil }

// withoutValue is the entry as history has it that gave up its value.
func (e *Entry) withoutValue() *Entry {
	return &Entry{compact: e.compact, Revision: e.Revision, CreateRevision: e.CreateRevision}
}

// reduce gives up large values, from the oldest on, until so many bytes are free
// or there are none left, and returns how many it freed.
func (s *Store) reduce(bytes int64) (freed int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.log.bytes
	s.log.unreduced = max(s.log.unreduced, s.log.first)
	for s.log.unreduced < s.log.next && was-s.log.bytes < bytes {
		seq := s.log.unreduced
		s.log.unreduced++
		r := s.log.at(seq)
		if r.large() == 0 {
			continue
		}
		s.charge(r)
		s.substitute(seq, r.prev.withoutValue())
		s.metrics.reduced.Add(1)
	}
	freed = was - s.log.bytes
	s.cache.history.Add(-freed)
	s.lookForLost()
	return freed
}

// substitute puts a reduced version in the place of the one before the change of a
// record, there and in the record that made it. The caller holds mu.
func (s *Store) substitute(seq uint64, reduced *Entry) {
	r := s.log.at(seq)
	if made, ok := s.log.maker(r.prev); ok {
		m := s.log.at(made)
		s.log.replace(made, m.with(reduced, m.prev))
		s.retire(m)
	}
	s.log.replace(seq, r.with(r.entry, reduced))
	s.cache.ring.retire(r.prev)
	s.retire(r)
	s.cache.pinned.leave(r.prev)
}

// retire lets what a record has told keep no encodings any more.
func (s *Store) retire(r *record) {
	s.cache.ring.retire(r.tomb.Load())
	s.cache.ring.retire(r.early.Load())
}
