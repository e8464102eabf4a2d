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
}

const recordOverhead = int64(unsafe.Sizeof(record{})) + 8

// last returns the previous version at the record's revision, which is what a
// watcher is told to be deleted. There is one for all watchers.
func (r *record) last() *Entry {
	if e := r.tomb.Load(); e != nil {
		return e
	}
	r.tomb.CompareAndSwap(nil, r.prev.at(r.revision))
	return r.tomb.Load()
}

// size is the memory that the record keeps alive: the new version is kept by
// the tree until a later record replaces it, so only the previous one counts.
func (r *record) size() int64 {
	if r.prev == nil {
		return recordOverhead
	}
	return recordOverhead + r.prev.size()
}

// minRing is the least capacity of a log, in records.
const minRing = 64

// eventLog is the recent history of a resource. Records are numbered without
// gaps; those from first to next are kept. Store.mu guards it.
type eventLog struct {
	ring        []*record // its length is a power of two
	first, next uint64
	// floor is the oldest revision after which nothing is missing.
	floor int64
	bytes int64
	// For metrics.
	grown, shrunk uint64
}

func (l *eventLog) len() int { return int(l.next - l.first) }

func (l *eventLog) at(seq uint64) *record { return l.ring[seq&uint64(len(l.ring)-1)] }

func (l *eventLog) append(r *record) {
	if l.len() == len(l.ring) {
		l.resize(max(minRing, 2*len(l.ring)))
		l.grown++
	}
	l.ring[l.next&uint64(len(l.ring)-1)] = r
	l.next++
	l.bytes += r.size()
}

// evict forgets the oldest record and returns it.
func (l *eventLog) evict() *record {
	r := l.at(l.first)
	l.ring[l.first&uint64(len(l.ring)-1)] = nil
	l.first++
	l.floor = r.revision
	l.bytes -= r.size()
	return r
}

// shrink gives memory back when little of it is used.
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

// restart forgets everything, so that history begins at a revision. Cursors
// from before can be told by their number.
func (l *eventLog) restart(floor int64) {
	l.next++
	l.first = l.next
	l.ring, l.bytes, l.floor = nil, 0, floor
}

// after returns the number of the first record after a revision.
func (l *eventLog) after(revision int64) uint64 {
	n := sort.Search(l.len(), func(i int) bool {
		return l.at(l.first+uint64(i)).revision > revision
	})
	return l.first + uint64(n)
}
