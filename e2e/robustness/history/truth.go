package history

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Change is one change of the store, as a watch of etcd itself tells it. A
// deletion has the key and the revision only.
type Change struct {
	Version
	Deleted bool
	At      time.Duration
}

// Truth is everything that happened in the store, in order. It is not changed
// once it is made.
type Truth struct {
	Changes []Change
	// Revision is the one up to which it is complete.
	Revision int64
}

// Matches tells whether a version is selected.
func (s Selection) Matches(v Version) bool {
	parts := strings.Split(v.Key, "/")
	return len(parts) == 3 && (s.Resource == "" || s.Resource == parts[0]) &&
		(s.Namespace == "" || s.Namespace == parts[1]) && (s.Name == "" || s.Name == parts[2]) &&
		(s.Color == "" || s.Color == v.Color)
}

// Events is what a watch of a selection has to tell of the whole truth. A
// version that leaves the selection is told as deleted, with what was seen of
// it last.
func (t *Truth) Events(s Selection) []Event {
	live := map[string]Version{}
	var events []Event
	for _, c := range t.Changes {
		old, existed := live[c.Key]
		was := existed && s.Matches(old)
		is := !c.Deleted && s.Matches(c.Version)
		e := Event{At: c.At, Version: c.Version}
		switch {
		case is && was:
			e.Type = Modified
		case is:
			e.Type = Added
		case was:
			e.Type = Deleted
			e.Mark, e.Color = old.Mark, old.Color
		}
		if e.Type != "" {
			events = append(events, e)
		}
		if c.Deleted {
			delete(live, c.Key)
		} else {
			live[c.Key] = c.Version
		}
	}
	return events
}

// State is what a selection holds at a revision, by key.
func (t *Truth) State(s Selection, revision int64) map[string]Version {
	state := map[string]Version{}
	for _, c := range t.Changes {
		if c.Revision > revision {
			break
		}
		if c.Deleted || !s.Matches(c.Version) {
			delete(state, c.Key)
		} else {
			state[c.Key] = c.Version
		}
	}
	return state
}

// Marks are the versions that were ever stored, by their marks.
func (t *Truth) Marks() map[string]Change {
	m := make(map[string]Change, len(t.Changes))
	for _, c := range t.Changes {
		if !c.Deleted {
			m[c.Mark] = c
		}
	}
	return m
}

// Within returns the part of events after one revision, up to another.
func Within(events []Event, after, upTo int64) []Event {
	from := search(events, after+1)
	return events[from:max(from, search(events, upTo+1))]
}

func search(events []Event, revision int64) int {
	i, _ := slices.BinarySearchFunc(events, revision, func(e Event, r int64) int { return cmp.Compare(e.Revision, r) })
	return i
}
