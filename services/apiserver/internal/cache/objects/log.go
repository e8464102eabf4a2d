package objects

import (
	"sort"
	"sync/atomic"
	"unsafe"
)

// Record is one change of one object. It is immutable.
type Record struct {
	Revision  int64
	AppliedAt int64  // when it was applied, in nanoseconds of the cache's clock
	Entry     *Entry // the version that the change made; nil for a deletion
	Prev      *Entry // the version before; nil for a creation
	// tombstone and earlyTombstone are prev at the revision of the deletion and at the one before,
	// made on first use (see Event.Entry).
	tombstone      atomic.Pointer[Entry]
	earlyTombstone atomic.Pointer[Entry]
}

// recordOverhead is the memory of a record without its entries, and of its slot in the ring.
const recordOverhead = int64(unsafe.Sizeof(Record{})) + 8

// PrevAtRevision returns the previous version at the revision of the record, which watchers receive
// as deleted. All watchers share it.
func (r *Record) PrevAtRevision() *Entry { return r.cachedCopyOfPrev(&r.tombstone, r.Revision) }

// PrevBeforeRevision returns the previous version at the revision before the record's, for watchers
// that receive more events of the same revision.
func (r *Record) PrevBeforeRevision() *Entry {
	return r.cachedCopyOfPrev(&r.earlyTombstone, r.Revision-1)
}

// cachedCopyOfPrev returns the copy of the previous version at a revision, which it keeps after the
// first call.
func (r *Record) cachedCopyOfPrev(retained *atomic.Pointer[Entry], revision int64) *Entry {
	if e := retained.Load(); e != nil {
		return e
	}
	retained.CompareAndSwap(nil, r.Prev.CopyAt(revision))
	e := retained.Load()
	if r.Prev.Retired() { // retired after the copy was made, so retire the copy too
		e.Retire()
	}
	return e
}

// Size returns the memory that the record keeps alive, in bytes. The tree keeps the new version
// until a later record replaces it. So only the previous version counts, without the parts that it
// shares with the new one.
func (r *Record) Size() int64 {
	if r.Prev == nil {
		return recordOverhead
	}
	return recordOverhead + r.Prev.UnsharedSize(r.Entry)
}

// WithVersions returns the same change with reduced versions.
func (r *Record) WithVersions(entry, prev *Entry) *Record {
	return &Record{Revision: r.Revision, AppliedAt: r.AppliedAt, Entry: entry, Prev: prev}
}

// minLogCapacity is the minimum capacity of a log, in records.
const minLogCapacity = 64

// Log is the recent history of a resource. Records are numbered without gaps. Those from First
// up to Next are kept. The lock of the store guards it.
type Log struct {
	ring        []*Record // the length is a power of two
	First, Next uint64
	// Floor is the oldest revision after which no record is missing. FloorAt is when it was the
	// newest, in nanoseconds of the cache's clock.
	Floor, FloorAt int64
	Bytes          int64
	// LargeBytes is the size in bytes of the values that may be reduced. All of them belong to
	// records from NextToReduce on.
	LargeBytes   int64
	NextToReduce uint64
	// For metrics.
	Grown, Shrunk uint64
}

// Len returns the number of records.
func (l *Log) Len() int { return int(l.Next - l.First) }

// Reaches reports whether there is a record of a revision or an earlier one.
func (l *Log) Reaches(revision int64) bool {
	return l.Len() > 0 && l.Record(l.First).Revision <= revision
}

// Record returns the record with a number, which must be kept.
func (l *Log) Record(seq uint64) *Record { return l.ring[seq&uint64(len(l.ring)-1)] }

// Append adds the newest record.
func (l *Log) Append(r *Record) {
	if l.Len() == len(l.ring) {
		l.resize(max(minLogCapacity, 2*len(l.ring)))
		l.Grown++
	}
	l.ring[l.Next&uint64(len(l.ring)-1)] = r
	l.Next++
	l.Bytes += r.Size()
	l.LargeBytes += r.LargeBytes()
}

// Evict drops the oldest record and returns it.
func (l *Log) Evict() *Record {
	r := l.Record(l.First)
	l.ring[l.First&uint64(len(l.ring)-1)] = nil
	l.First++
	l.Floor = r.Revision
	l.FloorAt = r.AppliedAt
	l.Bytes -= r.Size()
	l.LargeBytes -= r.LargeBytes()
	return r
}

// Replace replaces a record by one of the same change.
func (l *Log) Replace(seq uint64, r *Record) {
	old := l.Record(seq)
	l.Bytes += r.Size() - old.Size()
	l.LargeBytes += r.LargeBytes() - old.LargeBytes()
	l.ring[seq&uint64(len(l.ring)-1)] = r
}

// CreatorOf returns the number of the record that created a version, and false if it is not kept.
func (l *Log) CreatorOf(e *Entry) (uint64, bool) {
	for seq := l.FirstAfter(e.Revision - 1); seq < l.Next; seq++ {
		r := l.Record(seq)
		if r.Entry == e {
			return seq, true
		}
		if r.Revision > e.Revision {
			return 0, false
		}
	}
	return 0, false
}

// Shrink releases memory when little of it is used.
func (l *Log) Shrink() {
	for len(l.ring) > minLogCapacity && l.Len() < len(l.ring)/4 {
		l.resize(len(l.ring) / 2)
		l.Shrunk++
	}
}

// resize moves the records to a ring of another capacity.
func (l *Log) resize(capacity int) {
	ring := make([]*Record, capacity)
	for seq := l.First; seq < l.Next; seq++ {
		ring[seq&uint64(capacity-1)] = l.Record(seq)
	}
	l.ring = ring
}

// Restart drops all records, so that history starts at a revision. Cursors from before are
// recognized by their number.
func (l *Log) Restart(floor, now int64) {
	l.Next++
	l.First = l.Next
	l.ring = nil
	l.Bytes = 0
	l.LargeBytes = 0
	l.Floor = floor
	l.FloorAt = now
}

// FirstAfter returns the number of the first record after a revision.
func (l *Log) FirstAfter(revision int64) uint64 {
	n := sort.Search(l.Len(), func(i int) bool {
		return l.Record(l.First+uint64(i)).Revision > revision
	})
	return l.First + uint64(n)
}

// largeValue is the minimum size in bytes of a value that history may drop alone.
const largeValue = 16 << 10

// Reduced reports whether the version before the change has lost its value.
func (r *Record) Reduced() bool { return r.Prev != nil && !r.Prev.HasValue() }

// LargeBytes returns the size of the previous value if it is large and still present, and 0
// otherwise.
func (r *Record) LargeBytes() int64 {
	if r.Prev == nil || len(r.Prev.stored) < largeValue {
		return 0
	}
	return int64(len(r.Prev.stored))
}

// RetireTombstones stops the deletion entries of the record from keeping encodings.
func (r *Record) RetireTombstones() {
	r.tombstone.Load().Retire()
	r.earlyTombstone.Load().Retire()
}

// DropEncodings evicts the encodings of the previous version, which is unlikely to be read again.
func (r *Record) DropEncodings() {
	r.Prev.DropEncodings()
	r.tombstone.Load().DropEncodings()
	r.earlyTombstone.Load().DropEncodings()
}

// Capacity returns how many records fit into the log before it grows.
func (l *Log) Capacity() int { return len(l.ring) }
