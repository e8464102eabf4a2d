package fanout

import (
	"slices"

	"binnacle/services/apiserver/internal/storage"
)

// frame is a decoded message for the replica. It states that events are all changes after the
// revision previous, up to and including revision.
type frame struct {
	epoch    int64 // of the publisher
	chain    int64 // name of the chain
	previous int64
	revision int64
	// last is the newest change up to previous. It is the zero ChangeID if the publisher does not
	// know it.
	last storage.ChangeID
	// loaded means that there may have been deletions between last and previous.
	loaded bool
	// withheld means that the publisher did not send the events.
	withheld bool
	// end means that the publisher resigned. Such a frame has no events.
	end bool
	// local means that this replica's own publisher passed the message directly.
	local  bool
	events []storage.Event
	// answers holds the requests for a check of the store that this message answers.
	answers []uint64
	bytes   int // estimated size in memory
}

// extendsHistory reports whether the message certainly belongs to the history of a position: both
// agree on the changes that they share. The message must end after the position.
func (f *frame) extendsHistory(at storage.Position) bool {
	last := at.Last.Revision
	loadedFromEmptyStore := last == 0
	if loadedFromEmptyStore {
		return true
	}
	if last <= f.previous {
		if f.last.Revision == 0 {
			return false // nothing to compare with
		}
		if f.loaded {
			return f.last.Equal(at.Last)
		}
	}
	return !f.conflictsWith(at)
}

// conflictsWith reports whether the message certainly belongs to another history than a position.
// The message must not begin after the position.
func (f *frame) conflictsWith(at storage.Position) bool {
	last := at.Last
	switch {
	case last.Revision == 0 || last.Revision > f.revision: // nothing to compare
		return false
	case last.Revision > f.previous: // the message must contain the change, unless it was withheld
		return !f.withheld && !slices.ContainsFunc(f.events, func(e storage.Event) bool {
			return e.Revision == last.Revision && storage.ChangeIDOf(&e).Equal(last)
		})
	case f.last.Revision == 0: // the publisher does not know its last change
		return false
	case f.loaded && f.last.Revision < last.Revision: // the publisher may have missed a deletion
		return false
	case f.last.Revision > last.Revision: // the replica lacks a change, unless it may have missed a deletion
		return at.QuietAt(f.last.Revision)
	}
	return !f.last.Equal(last)
}
