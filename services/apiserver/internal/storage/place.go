package storage

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Mark is a change of one key, by which a store's history is known again. The zero
// Mark is of no change.
type Mark struct {
	Key      string
	Revision int64
	Deleted  bool
	// Sum is of the key, what happened to it, and the value as it is stored.
	Sum uint32
	// Size of that value in bytes.
	Size int
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// MarkOf is the mark of an event.
func MarkOf(e *Event) Mark {
	value := stored(e.Value, e.Seal)
	m := Mark{Key: e.Key, Revision: e.Revision, Deleted: e.Type == Deleted, Size: len(value)}
	head := make([]byte, 0, 64)
	head = append(head, byte(e.Type))
	head = binary.AppendVarint(head, e.CreateRevision)
	head = append(head, e.Key...)
	m.Sum = crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, value)
	return m
}

// MarkOfValue is the mark of the change that made a stored value.
func MarkOfValue(kv *KeyValue) Mark {
	e := Event{Type: Updated, Key: kv.Key, Revision: kv.ModRevision, CreateRevision: kv.CreateRevision, Value: kv.Value, Seal: kv.Seal}
	if kv.ModRevision == kv.CreateRevision {
		e.Type = Created
	}
	return MarkOf(&e)
}

// Same tells whether two marks are of the same change of the same history.
func (m Mark) Same(o Mark) bool { return m.Revision == o.Revision && m.Sum == o.Sum }

// Place is where somebody stands who follows the changes below a prefix, and what
// has to be in the store's history there: a store that was restored from a backup
// tells the same revisions again, with other changes.
type Place struct {
	// Revision up to which everything was seen.
	Revision int64
	// Last is a change that was seen, of Revision or before it. Without one the
	// history cannot be told from another that is as long.
	Last Mark
	// Quiet tells that nothing changed after Last.
	Quiet bool
	// ReadAt is the revision at which everything was read, when Last is the newest
	// value of that: up to there values may have been deleted after it, and from there
	// on nothing changed. 0 tells nothing.
	ReadAt int64
	// Store is the name of the store in ListResult; 0: not known.
	Store uint64
}

// After is the place after a batch was seen.
func (p Place) After(b Batch) Place {
	if n := len(b.Events); n > 0 {
		p.Last, p.Quiet, p.ReadAt = MarkOf(&b.Events[n-1]), true, 0
	}
	p.Revision = max(p.Revision, b.Revision)
	return p
}

// Loaded notes a value that was there at the place's revision.
func (p *Place) Loaded(kv *KeyValue) {
	if kv.ModRevision > p.Last.Revision {
		p.Last = MarkOfValue(kv)
	}
}

// Still tells whether nothing is known to have changed at a revision after Last.
func (p Place) Still(revision int64) bool {
	return p.Quiet || p.ReadAt != 0 && revision > p.ReadAt
}

// Recheck compares what a store tells again with the place: events are the first
// that it tells, from a revision on, which is that of Last or, when that is compacted,
// a later one. It returns those that are new, or *ReplacedError.
func (p Place) Recheck(from int64, events []Event) ([]Event, error) {
	found := from > p.Last.Revision
	var there map[string]int64 // what has a value at ReadAt that is newer than Last
	for len(events) > 0 && events[0].Revision <= p.Revision {
		e := &events[0]
		switch {
		case e.Revision == p.Last.Revision:
			found = found || MarkOf(e).Same(p.Last)
		case p.Still(e.Revision):
			return nil, p.Replaced(0, fmt.Sprintf("%s changed at %d, when nothing did", e.Key, e.Revision))
		case e.Type == Deleted:
			delete(there, e.Key)
		case p.ReadAt != 0:
			if there == nil {
				there = map[string]int64{}
			}
			there[e.Key] = e.Revision
		}
		events = events[1:]
	}
	for key, revision := range there {
		return nil, p.Replaced(0, fmt.Sprintf("%s was written at %d, and was not there at %d", key, revision, p.ReadAt))
	}
	if !found {
		return nil, p.Replaced(0, fmt.Sprintf("what happened to %s at %d did not happen", p.Last.Key, p.Last.Revision))
	}
	return events, nil
}

// Replaced is the error of a store whose history does not go through the place;
// newest is its revision, if known.
func (p Place) Replaced(newest int64, why string) *ReplacedError {
	return &ReplacedError{Known: p.Revision, Newest: newest, Why: why}
}
