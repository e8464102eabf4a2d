package watchcache

import (
	"cmp"
	"slices"
)

// History is kept for LogAge. When the logs of all resources together exceed their byte bound
// earlier than that, boundLogs reduces them in this order:
//
//  1. Large values are dropped, the oldest first. Their records stay, so every watcher can
//     continue. A watcher that needs such a value reads it from the store. The large objects of
//     one tenant do not cost other tenants their history.
//  2. The largest log drops its oldest records until it is as large as the second largest, and
//     so on. A resource that changes often does not cost other resources their history.
const (
	// largeValue is the minimum size in bytes of a value that can be dropped alone.
	largeValue = 16 << 10
	// slackPart is the fraction of the bound that is freed in addition to the excess.
	slackPart = 16
)

// boundLogs reduces the logs to their byte bound. The caller holds mu.
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
		// The i+1 largest logs shrink to the size of the next one, or as far as needed.
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

// logSize is the memory that a log keeps alive, in bytes.
type logSize struct {
	store        *Store
	bytes, large int64
}

func (s *Store) logSize() logSize {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return logSize{s, s.log.bytes, s.log.large}
}

// shed drops the oldest records that together hold at least the given number of bytes. It returns
// how many bytes it freed.
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

// reduced reports whether the version before the change has lost its value.
func (r *record) reduced() bool { return r.prev != nil && !r.prev.whole() }

// large returns the size of the previous value if it is large and still present, and 0 otherwise.
func (r *record) large() int64 {
	if r.prev == nil || len(r.prev.stored) < largeValue {
		return 0
	}
	return int64(len(r.prev.stored))
}

// whole reports whether the entry has its value. Only entries that exist in history alone can lose
// their value, and only those keep no encodings.
func (e *Entry) whole() bool { return e.stored != "" || e.ring() != nil }

// withoutValue returns a copy of the entry for history, without its value.
func (e *Entry) withoutValue() *Entry {
	return &Entry{compact: e.compact, Revision: e.Revision, CreateRevision: e.CreateRevision}
}

// reduce drops large values, the oldest first, until the given number of bytes is free or none are
// left. It returns how many bytes it freed.
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

// substitute replaces the version before a record's change by a reduced one, in that record and in
// the record that created the version. The caller holds mu.
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

// retire stops the deletion entries of a record from keeping encodings.
func (s *Store) retire(r *record) {
	s.cache.ring.retire(r.tomb.Load())
	s.cache.ring.retire(r.early.Load())
}
