package watchcache

import (
	"cmp"
	"slices"
	"sort"
	"sync/atomic"
	"unsafe"
)

// record is one change of one object. It is immutable.
type record struct {
	revision  int64
	appliedAt int64  // when it was applied, in nanoseconds of the cache's clock
	entry     *Entry // the version that the change made; nil for a deletion
	prev      *Entry // the version before; nil for a creation
	// tombstone and earlyTombstone are prev at the revision of the deletion and at the one before,
	// made on first use (see Event.Entry).
	tombstone      atomic.Pointer[Entry]
	earlyTombstone atomic.Pointer[Entry]
}

const recordOverhead = int64(unsafe.Sizeof(record{})) + 8

// prevAtRevision returns the previous version at the revision of the record, which watchers receive
// as deleted. All watchers share it.
func (r *record) prevAtRevision() *Entry { return r.prevCopy(&r.tombstone, r.revision) }

// prevBeforeRevision returns the previous version at the revision before the record's, for watchers
// that receive more events of the same revision.
func (r *record) prevBeforeRevision() *Entry { return r.prevCopy(&r.earlyTombstone, r.revision-1) }

// prevCopy returns the copy of the previous version at a revision, which it keeps after the first
// call.
func (r *record) prevCopy(kept *atomic.Pointer[Entry], revision int64) *Entry {
	if e := kept.Load(); e != nil {
		return e
	}
	kept.CompareAndSwap(nil, r.prev.copyAt(revision))
	e := kept.Load()
	if r.prev.retired() { // retired meanwhile, so this copy must be retired here
		e.retire()
	}
	return e
}

// size returns the memory that the record keeps alive, in bytes. The tree keeps the new version
// until a later record replaces it. So only the previous version counts, without the parts that it
// shares with the new one.
func (r *record) size() int64 {
	if r.prev == nil {
		return recordOverhead
	}
	return recordOverhead + r.prev.unsharedSize(r.entry)
}

// withVersions returns the same change with reduced versions.
func (r *record) withVersions(entry, prev *Entry) *record {
	return &record{revision: r.revision, appliedAt: r.appliedAt, entry: entry, prev: prev}
}

// minRing is the minimum capacity of a log, in records.
const minRing = 64

// eventLog is the recent history of a resource. Records are numbered without gaps. Those from first
// up to next are kept. Store.mu guards it.
type eventLog struct {
	ring        []*record // the length is a power of two
	first, next uint64
	// floor is the oldest revision after which no record is missing. floorAt is when it was the
	// newest, in nanoseconds of the cache's clock.
	floor, floorAt int64
	bytes          int64
	// largeBytes is the size in bytes of the values that may be reduced. All of them belong to
	// records from nextToReduce on.
	largeBytes   int64
	nextToReduce uint64
	// For metrics.
	grown, shrunk uint64
}

func (l *eventLog) len() int { return int(l.next - l.first) }

// reaches reports whether there is a record of a revision or an earlier one.
func (l *eventLog) reaches(revision int64) bool {
	return l.len() > 0 && l.record(l.first).revision <= revision
}

// record returns the record with a number, which must be kept.
func (l *eventLog) record(seq uint64) *record { return l.ring[seq&uint64(len(l.ring)-1)] }

// append adds the newest record.
func (l *eventLog) append(r *record) {
	if l.len() == len(l.ring) {
		l.resize(max(minRing, 2*len(l.ring)))
		l.grown++
	}
	l.ring[l.next&uint64(len(l.ring)-1)] = r
	l.next++
	l.bytes += r.size()
	l.largeBytes += r.largeBytes()
}

// evict drops the oldest record and returns it.
func (l *eventLog) evict() *record {
	r := l.record(l.first)
	l.ring[l.first&uint64(len(l.ring)-1)] = nil
	l.first++
	l.floor = r.revision
	l.floorAt = r.appliedAt
	l.bytes -= r.size()
	l.largeBytes -= r.largeBytes()
	return r
}

// replace replaces a record by one of the same change.
func (l *eventLog) replace(seq uint64, r *record) {
	old := l.record(seq)
	l.bytes += r.size() - old.size()
	l.largeBytes += r.largeBytes() - old.largeBytes()
	l.ring[seq&uint64(len(l.ring)-1)] = r
}

// creatorOf returns the number of the record that created a version, and false if it is not kept.
func (l *eventLog) creatorOf(e *Entry) (uint64, bool) {
	for seq := l.firstAfter(e.Revision - 1); seq < l.next; seq++ {
		r := l.record(seq)
		if r.entry == e {
			return seq, true
		}
		if r.revision > e.Revision {
			return 0, false
		}
	}
	return 0, false
}

// shrink releases memory when little of it is used.
func (l *eventLog) shrink() {
	for len(l.ring) > minRing && l.len() < len(l.ring)/4 {
		l.resize(len(l.ring) / 2)
		l.shrunk++
	}
}

func (l *eventLog) resize(capacity int) {
	ring := make([]*record, capacity)
	for seq := l.first; seq < l.next; seq++ {
		ring[seq&uint64(capacity-1)] = l.record(seq)
	}
	l.ring = ring
}

// restart drops all records, so that history begins at a revision. Cursors from before are
// recognized by their number.
func (l *eventLog) restart(floor, now int64) {
	l.next++
	l.first = l.next
	l.ring = nil
	l.bytes = 0
	l.largeBytes = 0
	l.floor = floor
	l.floorAt = now
}

// firstAfter returns the number of the first record after a revision.
func (l *eventLog) firstAfter(revision int64) uint64 {
	n := sort.Search(l.len(), func(i int) bool {
		return l.record(l.first+uint64(i)).revision > revision
	})
	return l.first + uint64(n)
}

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
	excess := c.history.Used() - c.cfg.HistoryBytes
	if excess <= 0 {
		return
	}
	excess += c.cfg.HistoryBytes / slackPart
	sizes := make([]logSize, 0, 16)
	for s := range c.routes.Load().all() {
		if size := s.logSize(); size.bytes > 0 {
			sizes = append(sizes, size)
		}
	}
	excess = dropLargestValues(sizes, excess)
	shrinkLargestLogs(sizes, excess, c.now())
}

// dropLargestValues drops large values of the logs, first of those with the most bytes of them,
// until excess bytes are free. It returns the remaining excess and updates sizes.
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
	return logSize{s, s.log.bytes, s.log.largeBytes}
}

// dropOldest drops the oldest records that together hold at least the given number of bytes. It
// returns how many bytes it freed.
func (s *Store) dropOldest(bytes, now int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.log.bytes
	n, remaining := 0, before
	for n < s.log.len() && before-remaining < bytes {
		remaining -= s.log.record(s.log.first + uint64(n)).size()
		n++
	}
	s.dropRecords(n)
	if now-s.log.floorAt < int64(s.cache.cfg.LogAge) {
		s.metrics.forgottenEarly.Add(uint64(n))
	}
	s.log.shrink()
	return before - s.log.bytes
}

// reduced reports whether the version before the change has lost its value.
func (r *record) reduced() bool { return r.prev != nil && !r.prev.hasValue() }

// largeBytes returns the size of the previous value if it is large and still present, and 0
// otherwise.
func (r *record) largeBytes() int64 {
	if r.prev == nil || len(r.prev.stored) < largeValue {
		return 0
	}
	return int64(len(r.prev.stored))
}

// hasValue reports whether the entry has its value. Only entries that exist in history alone can
// lose their value, and only those keep no encodings.
func (e *Entry) hasValue() bool { return e.stored != "" || e.ring() != nil }

// withoutValue returns a copy of the entry for history, without its value.
func (e *Entry) withoutValue() *Entry {
	return &Entry{compact: e.compact, Revision: e.Revision, CreateRevision: e.CreateRevision}
}

// dropLargeValues drops large values, the oldest first, until the given number of bytes is free or
// none are left. It returns how many bytes it freed.
func (s *Store) dropLargeValues(bytes int64) (freed int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.log.bytes
	s.log.nextToReduce = max(s.log.nextToReduce, s.log.first)
	for s.log.nextToReduce < s.log.next && before-s.log.bytes < bytes {
		seq := s.log.nextToReduce
		s.log.nextToReduce++
		r := s.log.record(seq)
		if r.largeBytes() == 0 {
			continue
		}
		s.chargeImages(r)
		s.replaceVersion(seq, r.prev.withoutValue())
		s.metrics.reduced.Add(1)
	}
	freed = before - s.log.bytes
	s.cache.history.Add(-freed)
	s.scheduleLostCheck()
	return freed
}

// replaceVersion replaces the version before a record's change by a reduced one, in that record and
// in the record that created the version. The caller holds mu.
func (s *Store) replaceVersion(seq uint64, reduced *Entry) {
	r := s.log.record(seq)
	if created, ok := s.log.creatorOf(r.prev); ok {
		creator := s.log.record(created)
		s.log.replace(created, creator.withVersions(reduced, creator.prev))
		s.retireTombstones(creator)
	}
	s.log.replace(seq, r.withVersions(r.entry, reduced))
	s.cache.releaseEntry(r.prev)
	s.retireTombstones(r)
}

// retireTombstones stops the deletion entries of a record from keeping encodings.
func (s *Store) retireTombstones(r *record) {
	r.tombstone.Load().retire()
	r.earlyTombstone.Load().retire()
}
