package history_test

import (
	"fmt"
	"reflect"
	"testing"

	"binnacle/e2e/robustness/history"
)

// version returns a version of a pod, whose value is derived from the revision.
func version(name string, revision int64, color string) history.Version {
	return history.Version{Key: "pods/ns/" + name, Revision: revision, Value: fmt.Sprint("m", revision), Color: color}
}

// changeLog is about an object that changes from red to blue and back and is deleted, and an object
// that is always blue.
func changeLog() *history.ChangeLog {
	return &history.ChangeLog{Revision: 20, Changes: []history.Change{
		{Version: version("a", 11, "red")},
		{Version: version("b", 12, "blue")},
		{Version: version("a", 13, "blue")},
		{Version: version("a", 14, "red")},
		{Version: history.Version{Key: "pods/ns/a", Revision: 15}, Deleted: true},
	}}
}

// TestEventsOfSelection checks which events a watch of a selection must deliver, also when an
// object enters or leaves the selection.
func TestEventsOfSelection(t *testing.T) {
	gone := func(name string, revision, last int64, color string) history.Version {
		v := version(name, last, color)
		v.Revision = revision
		return v
	}
	for _, test := range []struct {
		name      string
		selection history.Selection
		want      []history.Event
	}{
		{name: "everything", selection: history.Selection{Resource: "pods"}, want: []history.Event{
			{Type: history.Added, Version: version("a", 11, "red")},
			{Type: history.Added, Version: version("b", 12, "blue")},
			{Type: history.Modified, Version: version("a", 13, "blue")},
			{Type: history.Modified, Version: version("a", 14, "red")},
			{Type: history.Deleted, Version: gone("a", 15, 14, "red")},
		}},
		{name: "a color that is left and entered", selection: history.Selection{Resource: "pods", Color: "red"}, want: []history.Event{
			{Type: history.Added, Version: version("a", 11, "red")},
			{Type: history.Deleted, Version: gone("a", 13, 11, "red")},
			{Type: history.Added, Version: version("a", 14, "red")},
			{Type: history.Deleted, Version: gone("a", 15, 14, "red")},
		}},
		{name: "one name", selection: history.Selection{Resource: "pods", Namespace: "ns", Name: "b"}, want: []history.Event{
			{Type: history.Added, Version: version("b", 12, "blue")},
		}},
		{name: "another namespace", selection: history.Selection{Resource: "pods", Namespace: "other"}, want: nil},
		{name: "another resource", selection: history.Selection{Resource: "configmaps"}, want: nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := changeLog().Events(test.selection); !reflect.DeepEqual(got, test.want) {
				t.Errorf("Events(%+v):\ngot  %v\nwant %v", test.selection, got, test.want)
			}
		})
	}
}

// TestStateAtRevision checks that the state holds the selected versions at a revision.
func TestStateAtRevision(t *testing.T) {
	red := history.Selection{Resource: "pods", Color: "red"}
	for revision, want := range map[int64][]history.Version{
		10: nil, 11: {version("a", 11, "red")}, 12: {version("a", 11, "red")}, 13: nil, 14: {version("a", 14, "red")}, 20: nil,
	} {
		got := changeLog().State(red, revision)
		if len(got) != len(want) {
			t.Errorf("State at revision %d = %v, want %v", revision, got, want)
		}
		for _, v := range want {
			if got[v.Key] != v {
				t.Errorf("State at revision %d: got %v, want %v", revision, got[v.Key], v)
			}
		}
	}
}

// TestWithinReturnsHalfOpenRange checks that the lower bound is excluded and the upper one
// included.
func TestWithinReturnsHalfOpenRange(t *testing.T) {
	events := changeLog().Events(history.Selection{Resource: "pods"})
	for _, test := range []struct {
		after, upTo int64
		from, until int
	}{
		{after: 0, upTo: 20, from: 0, until: 5},
		{after: 11, upTo: 13, from: 1, until: 3},
		{after: 15, upTo: 20, from: 5, until: 5},
		{after: 13, upTo: 13, from: 3, until: 3},
		{after: 14, upTo: 12, from: 4, until: 4},
		{after: 0, upTo: 10, from: 0, until: 0},
	} {
		got := history.Within(events, test.after, test.upTo)
		if want := events[test.from:test.until]; len(got) != len(want) || len(got) > 0 && got[0] != want[0] {
			t.Errorf("Within(events, %d, %d) = %v, want %v", test.after, test.upTo, got, want)
		}
	}
}

// TestSessionsBeginAtStates checks that a stream with a state begins a session and that later
// streams continue it.
func TestSessionsBeginAtStates(t *testing.T) {
	bookmark := func(r int64) history.Event {
		return history.Event{Type: history.Bookmark, Version: history.Version{Revision: r}}
	}
	watch := history.Watch{Streams: []history.Stream{
		{State: &history.Read{Revision: 5}, FromRevision: 5, Events: []history.Event{bookmark(7)}},
		{FromRevision: 7},
		{State: &history.Read{Revision: 9}, FromRevision: 9},
		{FromRevision: 9, Events: []history.Event{bookmark(10), bookmark(12)}},
	}}
	sessions := watch.Sessions()
	if len(sessions) != 2 {
		t.Fatalf("got %d sessions, want 2", len(sessions))
	}
	firstState, secondState := sessions[0], sessions[1]
	if firstState.Final || firstState.Start.Revision != 5 || firstState.Last() != 7 || len(firstState.Events()) != 1 || len(firstState.Streams) != 2 {
		t.Errorf("got first session %+v, want 2 streams from revision 5 to 7 with 1 event, not final", firstState)
	}
	if !secondState.Final || secondState.Start.Revision != 9 || secondState.Last() != 12 || len(secondState.Events()) != 2 {
		t.Errorf("got second session %+v, want a final one from revision 9 to 12 with 2 events", secondState)
	}
}
