package watchcache

import (
	"sort"
	"sync/atomic"
	"unsafe"
)

// record is one change of one object. It is immutable.
type record struct {
	revision int64
	at       int64  // when it was applied, in nanoseconds of the cache's clock
	entry    *Entry // the version that the change made; nil for a deletion
	prev     *Entry // the version before; nil for a creation
	tomb     atomic.Pointer[Entry]
	early    atomic.Pointer[Entry]
}

const recordOverhead = int64(unsafe.Sizeof(record{})) + 8

// last returns the previous version at the revision of the record, which watchers receive as
// deleted. All watchers share it.
func (r *record) last() *Entry { return r.lastAt(&r.tomb, r.revision) }

// lastBefore is last at the revision before the record's, for watchers that receive more events of
// the same revision.
func (r *record) lastBefore() *Entry { return r.lastAt(&r.early, r.revision-1) }

func (r *record) lastAt(kept *atomic.Pointer[Entry], revision int64) *Entry {
	if e := kept.Load(); e != nil {
		return e
	}
	kept.CompareAndSwap(nil, r.prev.at(revision))
	e := kept.Load()
	if r.prev.retired() { // retired meanwhile, so this copy must be retired here
		e.ring().retire(e)
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
	return recordOverhead + r.prev.sizeBeside(r.entry)
}

// with returns the same change with reduced versions.
func (r *record) with(entry, prev *Entry) *record {
	return &record{revision: r.revision, at: r.at, entry: entry, prev: prev}
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
	// large is the size in bytes of the values that may be reduced. All of them belong to records
	// from unreduced on.
	large     int64
	unreduced uint64
	// For metrics.
	grown, shrunk uint64
}

func (l *eventLog) len() int { return int(l.next - l.first) }

// reaches reports whether there is a record of a revision or an earlier one.
func (l *eventLog) reaches(revision int64) bool {
	return l.len() > 0 && l.at(l.first).revision <= revision
}

func (l *eventLog) at(seq uint64) *record { return l.ring[seq&uint64(len(l.ring)-1)] }

func (l *eventLog) append(r *record) {
	if l.len() == len(l.ring) {
		l.resize(max(minRing, 2*len(l.ring)))
		l.grown++
	}
	l.ring[l.next&uint64(len(l.ring)-1)] = r
	l.next++
	l.bytes += r.size()
	l.large += r.large()
}

// evict drops the oldest record and returns it.
func (l *eventLog) evict() *record {
	r := l.at(l.first)
	l.ring[l.first&uint64(len(l.ring)-1)] = nil
	l.first++
	l.floor, l.floorAt = r.revision, r.at
	l.bytes -= r.size()
	l.large -= r.large()
	return r
}

// replace replaces a record by one of the same change.
func (l *eventLog) replace(seq uint64, r *record) {
	was := l.at(seq)
	l.bytes += r.size() - was.size()
	l.large += r.large() - was.large()
	l.ring[seq&uint64(len(l.ring)-1)] = r
}

// maker returns the number of the record that created a version, and false if it is not kept.
func (l *eventLog) maker(e *Entry) (uint64, bool) {
	for seq := l.after(e.Revision - 1); seq < l.next; seq++ {
		switch r := l.at(seq); {
		case r.entry == e:
			return seq, true
		case r.revision > e.Revision:
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
		ring[seq&uint64(capacity-1)] = l.at(seq)
	}
	l.ring = ring
}

// restart drops all records, so that history begins at a revision. Cursors from before are
// recognized by their number.
func (l *eventLog) restart(floor, now int64) {
	l.next++
	l.first = l.next
	l.ring, l.bytes, l.large = nil, 0, 0
	l.floor, l.floorAt = floor, now
}

// after returns the number of the first record after a revision.
func (l *eventLog) after(revision int64) uint64 {
	n := sort.Search(l.len(), func(i int) bool {
		return l.at(l.first+uint64(i)).revision > revision
	})
	return l.first + uint64(n)
}
