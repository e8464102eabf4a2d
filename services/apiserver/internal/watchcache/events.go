package watchcache

// EventType says what a change did to what a watcher selects.
type EventType uint8

// The types. Bookmark ends the initial state and carries no entry.
const (
	Added EventType = iota + 1
	Modified
	Deleted
	Bookmark
)

func (t EventType) String() string {
	return [...]string{"", "ADDED", "MODIFIED", "DELETED", "BOOKMARK"}[t]
}

// Event is a change as a watcher's selection shows it.
type Event struct {
	Type     EventType
	Revision int64
	// Entry is the version that the change made; for Deleted the last version
	// that was selected, at the revision of the change. All watchers that are
	// told of a change in the same type are given the same entry, so what is
	// encoded from it can be kept with it.
	//
	// The store deletes all that shares a lease at one revision. A client that is
	// cut off in the middle goes on after the last revision that it saw, so a
	// deletion that is not the last that a watcher is told of its revision shows
	// the revision before: what it saw already it is told again, and loses none.
	Entry *Entry
	// Before is the version before a Modified, at the revision of the change, where the
	// selection asks for it.
	Before *Entry
}

// Initial says what a watcher is told first.
type Initial uint8

// What a watcher is told first: nothing, or the present state as Added events
// in the order of keys, followed by a Bookmark at its revision.
const (
	InitialNone Initial = iota
	InitialState
)
