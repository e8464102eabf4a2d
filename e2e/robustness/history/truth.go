package history

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Change is one change in etcd, as a watch of etcd delivers it. A deletion has only the key and the
// revision.
type Change struct {
	Version
	Deleted bool
	Time    time.Duration
}

// ChangeLog holds the changes in etcd in order. It is immutable.
type ChangeLog struct {
	Changes []Change
	// Revision is the revision up to which the changes are complete.
	Revision int64
}

// Matches reports whether a version is selected.
func (s Selection) Matches(version Version) bool {
	parts := strings.Split(version.Key, "/")
	return len(parts) == 3 && (s.Resource == "" || s.Resource == parts[0]) &&
		(s.Namespace == "" || s.Namespace == parts[1]) && (s.Name == "" || s.Name == parts[2]) &&
		(s.Color == "" || s.Color == version.Color)
}

// Events returns the events that a watch of a selection must deliver. A version that leaves the
// selection is delivered as deleted, with the content of the last selected version.
func (t *ChangeLog) Events(selection Selection) []Event {
	live := map[string]Version{}
	var events []Event
	for _, change := range t.Changes {
		old, existed := live[change.Key]
		wasSelected := existed && selection.Matches(old)
		isSelected := !change.Deleted && selection.Matches(change.Version)
		event := Event{Time: change.Time, Version: change.Version}
		switch {
		case isSelected && wasSelected:
			event.Type = Modified
		case isSelected:
			event.Type = Added
		case wasSelected:
			event.Type = Deleted
			event.Value = old.Value
			event.Color = old.Color
		}
		if event.Type != "" {
			events = append(events, event)
		}
		if change.Deleted {
			delete(live, change.Key)
		} else {
			live[change.Key] = change.Version
		}
	}
	return events
}

// State returns the selected versions at a revision by key.
func (t *ChangeLog) State(selection Selection, revision int64) map[string]Version {
	state := map[string]Version{}
	for _, change := range t.Changes {
		if change.Revision > revision {
			break
		}
		if change.Deleted || !selection.Matches(change.Version) {
			delete(state, change.Key)
		} else {
			state[change.Key] = change.Version
		}
	}
	return state
}

// Marks returns all stored versions by mark.
func (t *ChangeLog) Marks() map[string]Change {
	m := make(map[string]Change, len(t.Changes))
	for _, c := range t.Changes {
		if !c.Deleted {
			m[c.Value] = c
		}
	}
	return m
}

// Within returns the events after one revision up to and including another.
func Within(events []Event, after, upTo int64) []Event {
	from := searchRevision(events, after+1)
	return events[from:max(from, searchRevision(events, upTo+1))]
}

// searchRevision returns the index of the first event with at least the revision.
func searchRevision(events []Event, revision int64) int {
	i, _ := slices.BinarySearchFunc(events, revision, func(e Event, r int64) int { return cmp.Compare(e.Revision, r) })
	return i
}
