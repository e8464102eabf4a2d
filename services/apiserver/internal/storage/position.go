package storage

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// ChangeID identifies a change of one key, by which a store's history is recognized. The zero
// ChangeID stands for no change.
type ChangeID struct {
	Key      string
	Revision int64
	Deleted  bool
	// Sum covers the key, the type of the change and the value as stored.
	Sum uint32
	// Size is the size of that value in bytes.
	Size int
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ChangeIDOf returns the ID of the change that an event describes.
func ChangeIDOf(e *Event) ChangeID {
	value := storedForm(e.Value, e.Seal)
	id := ChangeID{Key: e.Key, Revision: e.Revision, Deleted: e.Type == Deleted, Size: len(value)}
	head := make([]byte, 0, 64)
	head = append(head, byte(e.Type))
	head = binary.AppendVarint(head, e.CreateRevision)
	head = append(head, e.Key...)
	id.Sum = crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, value)
	return id
}

// ChangeIDOfValue returns the ID of the last change of a stored value.
func ChangeIDOfValue(kv *KeyValue) ChangeID {
	e := Event{
		Type:           Updated,
		Key:            kv.Key,
		Revision:       kv.ModRevision,
		CreateRevision: kv.CreateRevision,
		Value:          kv.Value,
		Seal:           kv.Seal,
	}
	if kv.ModRevision == kv.CreateRevision {
		e.Type = Created
	}
	return ChangeIDOf(&e)
}

// Equal reports whether two IDs identify the same change of the same history.
func (id ChangeID) Equal(other ChangeID) bool {
	return id.Revision == other.Revision && id.Sum == other.Sum
}

// Position is the position of a reader that follows the changes below a prefix, with the data
// that the store's history must contain there. A store that was restored from a backup
// assigns the same revisions again to other changes.
type Position struct {
	// Revision is the revision up to which everything was seen.
	Revision int64
	// Last is a seen change at or before Revision. Without it the history cannot be distinguished
	// from another one of the same length.
	Last ChangeID
	// Unchanged means that nothing changed after Last.
	Unchanged bool
	// ReadAt is the revision at which everything was read, if Last is the newest value of that
	// read. Up to ReadAt values may have been deleted after Last; after it nothing changed. 0 means
	// that it is not known.
	ReadAt int64
	// Store is the identity of the store in ListResult; 0 if unknown.
	Store uint64
}

// Advance returns the position after a batch.
func (p Position) Advance(b Batch) Position {
	if n := len(b.Events); n > 0 {
		p.Last = ChangeIDOf(&b.Events[n-1])
		p.Unchanged = true
		p.ReadAt = 0
	}
	p.Revision = max(p.Revision, b.Revision)
	return p
}

// ObserveLoaded records a value that existed at the revision of the position.
func (p *Position) ObserveLoaded(kv *KeyValue) {
	if kv.ModRevision > p.Last.Revision {
		p.Last = ChangeIDOfValue(kv)
	}
}

// QuietAt reports whether nothing changed at a revision after Last.
func (p Position) QuietAt(revision int64) bool {
	return p.Unchanged || p.ReadAt != 0 && revision > p.ReadAt
}

// Recheck compares redelivered events with the position. events are the first ones that the store
// delivers from the revision from on: the revision of Last or, if that is compacted, a later one.
// Recheck returns the new events, or *ReplacedError.
func (p Position) Recheck(from int64, events []Event) ([]Event, error) {
	found := from > p.Last.Revision
	// missing holds the revisions of keys with a value at ReadAt that is newer than Last.
	var missing map[string]int64
	for len(events) > 0 && events[0].Revision <= p.Revision {
		event := &events[0]
		switch {
		case event.Revision == p.Last.Revision:
			found = found || ChangeIDOf(event).Equal(p.Last)
		case p.QuietAt(event.Revision):
			return nil, p.HistoryReplaced(0, fmt.Sprintf("%s changed at %d, where no change is expected", event.Key, event.Revision))
		case event.Type == Deleted:
			delete(missing, event.Key)
		case p.ReadAt != 0:
			if missing == nil {
				missing = map[string]int64{}
			}
			missing[event.Key] = event.Revision
		}
		events = events[1:]
	}
	for key, revision := range missing {
		return nil, p.HistoryReplaced(0, fmt.Sprintf("%s was written at %d, but is missing at %d", key, revision, p.ReadAt))
	}
	if !found {
		return nil, p.HistoryReplaced(0, fmt.Sprintf("the change of %s at %d is missing", p.Last.Key, p.Last.Revision))
	}
	return events, nil
}

// HistoryReplaced returns the error for a store whose history does not contain the position. newest
// is the store's revision, or 0 if unknown.
func (p Position) HistoryReplaced(newest int64, reason string) *ReplacedError {
	return &ReplacedError{KnownRevision: p.Revision, NewestRevision: newest, Reason: reason}
}
