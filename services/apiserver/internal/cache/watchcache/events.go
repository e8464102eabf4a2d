package watchcache

// EventType is the effect of a change on the objects that a watcher selects.
type EventType uint8

// Event types. Bookmark ends the initial state and carries no entry.
const (
	Added EventType = iota + 1
	Modified
	Deleted
	Bookmark
)

func (t EventType) String() string {
	return [...]string{"", "ADDED", "MODIFIED", "DELETED", "BOOKMARK"}[t]
}

// Event is a change as seen through the selection of a watcher.
type Event struct {
	Type     EventType
	Revision int64
	// Entry is the version that the change created. For Deleted it is the last version that was
	// selected, at the revision of the change. All watchers that receive a change with the same
	// type get the same entry, so encodings can be kept with it.
	//
	// The store deletes all keys of a lease at one revision. A disconnected client resumes after
	// the last revision that it saw. So a deletion that is not the last event of its revision for a
	// watcher carries the revision before. A resuming client receives some events again and loses
	// none.
	Entry *Entry
	// Before is the version before a Modified event, at the revision of the change. It is set if
	// the selection requests it.
	Before *Entry
}

// Initial selects the initial events of a watcher.
type Initial uint8

// Initial events: none, or the current state as Added events in the order of keys, followed by a
// Bookmark at its revision.
const (
	InitialNone Initial = iota
	InitialState
)
