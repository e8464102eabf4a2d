package check_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"binnacle/e2e/robustness/check"
	"binnacle/e2e/robustness/history"
)

// changeLog is about two objects. One is created at revision 11, changes at 13, 15 and 17 and is
// deleted at 19. The other is created at 12, and its color changes from red to blue at 14. Nothing
// happens between 20 and 30.
func changeLog() *history.ChangeLog {
	result := &history.ChangeLog{Revision: 30}
	add := func(name string, revision int64, color string) {
		v := history.Version{Key: "configmaps/ns/" + name, Revision: revision, Value: fmt.Sprint("m", revision), Color: color}
		result.Changes = append(result.Changes, history.Change{Version: v, Time: timeOf(revision)})
	}
	add("a", 11, "red")
	add("b", 12, "red")
	add("a", 13, "red")
	add("b", 14, "blue")
	add("a", 15, "red")
	add("a", 17, "red")
	result.Changes = append(result.Changes, history.Change{
		Version: history.Version{Key: "configmaps/ns/a", Revision: 19},
		Deleted: true,
		Time:    timeOf(19),
	})
	return result
}

// timeOf returns the time of a revision.
func timeOf(revision int64) time.Duration { return time.Duration(revision) * time.Millisecond }

var configMaps = history.Selection{Resource: "configmaps"}

// validHistory returns a history without violations: a watch in two streams, a watch of red
// objects, an informer, reads of all kinds, and operations.
func validHistory() *history.History {
	log := changeLog()
	initial := readAt(log, configMaps, history.Newest, 10)
	events := log.Events(configMaps)
	mark := func(r int64) history.Event {
		return history.Event{Time: timeOf(r), Type: history.Bookmark, Version: history.Version{Revision: r}}
	}
	watch := history.Watch{Name: "w", Selection: configMaps, Streams: []history.Stream{
		{State: initial, FromRevision: 10, Start: timeOf(10), Events: append(slices.Clone(events[:4]), mark(14))},
		{FromRevision: 14, Start: timeOf(15), Events: append(slices.Clone(events[4:]), mark(20))},
	}}
	red := history.Selection{Resource: "configmaps", Color: "red"}
	colored := history.Watch{Name: "red", Selection: red, Streams: []history.Stream{
		{
			State:        readAt(log, red, history.Initial, 12),
			FromRevision: 12,
			Start:        timeOf(12),
			Events:       history.Within(log.Events(red), 12, 30),
		},
	}}
	informer := watch
	informer.Name = "i"
	informer.Streams = slices.Clone(watch.Streams)
	for i := range informer.Streams {
		informer.Streams[i].Events = slices.Clone(watch.Streams[i].Events)
	}
	recorded := &history.History{
		ChangeLog: log, SettledRevision: 20, Watches: []*history.Watch{&watch, &colored},
		Informers: []*history.Informer{{Watch: informer, Final: readAt(log, configMaps, history.Any, 20).Items}},
		Reads: []history.Read{
			*readAt(log, configMaps, history.Newest, 13), *readAt(log, configMaps, history.Any, 11),
			*readAt(log, red, history.Paged, 17), *readAt(log, red, history.Newest, 20),
		},
	}
	exact := *readAt(log, configMaps, history.Exact, 12)
	exact.MinRevision = 12
	later := *readAt(log, configMaps, history.NotOlder, 15)
	later.MinRevision = 12
	recorded.Reads = append(recorded.Reads, exact, later)
	recorded.Operations = operations()
	return recorded
}

// readAt returns a correct read at the time of its revision.
func readAt(changeLog *history.ChangeLog, selection history.Selection, kind history.ReadKind, revision int64) *history.Read {
	read := &history.Read{
		Kind:      kind,
		Client:    "reader",
		Selection: selection,
		Start:     timeOf(revision),
		End:       timeOf(revision),
		Revision:  revision,
	}
	for _, v := range changeLog.State(selection, revision) {
		read.Items = append(read.Items, v)
	}
	return read
}

// operations returns operations on one object whose responses an order explains.
func operations() []history.Operation {
	op := func(client int, verb history.Verb, expected, mark string, revision int64, outcome history.Outcome) history.Operation {
		return history.Operation{
			Client: client, Verb: verb, Key: "configmaps/ns/a", Expected: expected, Value: mark, Outcome: outcome,
			Revision: revision, Start: timeOf(revision), End: timeOf(revision),
		}
	}
	ops := []history.Operation{
		op(0, history.Create, "", "m11", 11, history.Done),
		op(1, history.Update, "m11", "m13", 13, history.Done),
		op(2, history.Update, "m11", "lost", 14, history.Conflict),
		op(1, history.Update, "", "m15", 15, history.Unknown),
		op(0, history.Get, "", "m15", 16, history.Done),
		op(2, history.Create, "", "lost too", 16, history.Exists),
		op(0, history.Update, "m15", "m17", 17, history.Done),
		op(1, history.Update, "", "never", 18, history.Unknown),
		op(2, history.Delete, "m17", "", 19, history.Done),
		op(0, history.Get, "", "", 20, history.NotFound),
		op(2, history.Update, "m17", "after the end", 20, history.Conflict),
		op(1, history.Update, "", "after the end too", 20, history.NotFound),
	}
	for i := range ops {
		if v := ops[i].Verb; v == history.Delete || v == history.Get || ops[i].Outcome != history.Done {
			ops[i].Revision = 0 // the response has no revision, or no new one
		}
	}
	return ops
}

// TestCorrectHistoryHasNoViolations checks that no checker reports a violation of a correct
// history.
func TestCorrectHistoryHasNoViolations(t *testing.T) {
	for _, v := range check.All(validHistory()) {
		t.Error(v)
	}
}

// damage is a server error in a history and the guarantees that it violates.
type damage struct {
	name     string
	violates string // exactly the violated guarantees, separated by spaces
	apply    func(*history.History)
}

// TestCheckersFindDamage checks that each server error is found by exactly the checkers of the
// guarantees that it violates.
func TestCheckersFindDamage(t *testing.T) {
	for _, damage := range slices.Concat(watchDamages(), readDamages(), operationDamages()) {
		t.Run(damage.name, func(t *testing.T) {
			recorded := validHistory()
			damage.apply(recorded)
			found := map[string]bool{}
			for _, violation := range check.All(recorded) {
				found[violation.Guarantee] = true
			}
			for _, checker := range check.Checkers() {
				if want := slices.Contains(strings.Fields(damage.violates), checker.Guarantee); found[checker.Guarantee] != want {
					t.Errorf("violation of %s found: %t, want %t: %v", checker.Guarantee, found[checker.Guarantee], want, checker.Check(recorded))
				}
			}
		})
	}
}

// firstStream returns the first stream of the first watch.
func firstStream(recorded *history.History) *history.Stream { return &recorded.Watches[0].Streams[0] }

// secondStream returns the second stream of the first watch.
func secondStream(recorded *history.History) *history.Stream { return &recorded.Watches[0].Streams[1] }

// watchDamages returns errors in the events of watches and in the stores of informers.
func watchDamages() []damage {
	return []damage{
		{name: "two events swapped", violates: "ordered", apply: func(recorded *history.History) {
			event := firstStream(recorded).Events
			event[1], event[2] = event[2], event[1]
		}},
		{name: "an event delivered twice", violates: "unique", apply: func(recorded *history.History) {
			stream := firstStream(recorded)
			stream.Events = slices.Insert(stream.Events, 2, stream.Events[1])
		}},
		{
			name:     "an event delivered again by the next stream",
			violates: "unique resumable bookmarkable",
			apply: func(recorded *history.History) {
				stream := secondStream(recorded)
				stream.Events = slices.Insert(stream.Events, 0, firstStream(recorded).Events[3])
			},
		},
		{name: "a missing event", violates: "reliable bookmarkable", apply: func(recorded *history.History) {
			stream := firstStream(recorded)
			stream.Events = slices.Delete(stream.Events, 1, 2)
		}},
		{
			name:     "a missing first event after a resumption",
			violates: "reliable resumable bookmarkable",
			apply: func(recorded *history.History) {
				stream := secondStream(recorded)
				stream.Events = slices.Delete(stream.Events, 0, 1)
			},
		},
		{name: "missing last events", violates: "reliable", apply: func(recorded *history.History) {
			stream := secondStream(recorded)
			stream.Events = stream.Events[:1]
		}},
		{name: "a watch that never began", violates: "reliable", apply: func(recorded *history.History) { recorded.Watches[1].Streams = nil }},
		{name: "a gap between two streams", violates: "resumable reliable", apply: func(recorded *history.History) {
			firstStream(recorded).Events = firstStream(recorded).Events[:3]
			secondStream(recorded).Events = secondStream(recorded).Events[:3]
		}},
		{
			name:     "the content of an older version",
			violates: "atomic",
			apply:    func(recorded *history.History) { firstStream(recorded).Events[2].Value = "m11" },
		},
		{
			name:     "a label that is not of this version",
			violates: "atomic",
			apply:    func(recorded *history.History) { firstStream(recorded).Events[3].Color = "red" },
		},
		{
			name:     "an addition delivered as a change",
			violates: "atomic",
			apply:    func(recorded *history.History) { firstStream(recorded).Events[0].Type = history.Modified },
		},
		{name: "an event that did not happen", violates: "atomic", apply: func(recorded *history.History) {
			stream := secondStream(recorded)
			event := stream.Events[1]
			event.Revision, event.Value = 18, "m18"
			stream.Events = slices.Insert(stream.Events, 2, event)
		}},
		{name: "an object that leaves the selection, delivered as a change", violates: "atomic", apply: func(recorded *history.History) {
			for i := range recorded.Watches[1].Streams[0].Events {
				if event := &recorded.Watches[1].Streams[0].Events[i]; event.Revision == 14 {
					event.Type = history.Modified
				}
			}
		}},
		{name: "a bookmark too early", violates: "bookmarkable", apply: func(recorded *history.History) {
			firstStream(recorded).Events[4].Revision = 13
			firstStream(recorded).Events = slices.Insert(firstStream(recorded).Events, 2, firstStream(recorded).Events[4])
			firstStream(recorded).Events = slices.Delete(firstStream(recorded).Events, 5, 6)
		}},
		{name: "bookmarks with decreasing revisions", violates: "bookmarkable ordered", apply: func(recorded *history.History) {
			stream := secondStream(recorded)
			bookmark := stream.Events[len(stream.Events)-1]
			bookmark.Revision = 15
			stream.Events = append(stream.Events, bookmark)
		}},
		{
			name:     "an informer's store that lacks an object",
			violates: "exact",
			apply:    func(recorded *history.History) { recorded.Informers[0].Final = nil },
		},
		{name: "an informer's store that keeps a deleted object", violates: "exact", apply: func(recorded *history.History) {
			recorded.Informers[0].Final = append(recorded.Informers[0].Final, history.Version{
				Key:      "configmaps/ns/a",
				Revision: 17,
				Value:    "m17",
				Color:    "red",
			})
		}},
	}
}

// readDamages returns errors in lists and initial states.
func readDamages() []damage {
	return []damage{
		{name: "a read of an old state", violates: "fresh linearizable", apply: func(recorded *history.History) {
			read := readAt(recorded.ChangeLog, configMaps, history.Newest, 13)
			read.Start, read.End = timeOf(18), timeOf(18)
			recorded.Reads = append(recorded.Reads, *read)
		}},
		{name: "a watch that begins with an old state", violates: "fresh", apply: func(recorded *history.History) {
			state := recorded.Watches[1].Streams[0].State
			state.Start, state.End = timeOf(16), timeOf(16)
		}},
		{name: "a list that lacks an object", violates: "consistent linearizable", apply: func(recorded *history.History) {
			recorded.Reads[0].Items = slices.DeleteFunc(recorded.Reads[0].Items, func(v history.Version) bool {
				return v.Key == "configmaps/ns/a"
			})
		}},
		{name: "a list with an outdated object", violates: "consistent", apply: func(recorded *history.History) {
			read := &recorded.Reads[2]
			read.Items = append(read.Items, history.Version{Key: "configmaps/ns/b", Revision: 12, Value: "m12", Color: "red"})
		}},
		{name: "a page returned twice", violates: "consistent", apply: func(recorded *history.History) {
			read := &recorded.Reads[2]
			read.Items = append(read.Items, read.Items[0])
		}},
		{
			name:     "a read that is older than requested",
			violates: "consistent",
			apply:    func(recorded *history.History) { recorded.Reads[5].MinRevision = 16 },
		},
		{
			name:     "a read that is not at the requested revision",
			violates: "consistent",
			apply:    func(recorded *history.History) { recorded.Reads[4].MinRevision = 11 },
		},
	}
}

// operationDamages returns errors in the responses to operations.
func operationDamages() []damage {
	change := func(index int, apply func(*history.Operation)) func(*history.History) {
		return func(recorded *history.History) { apply(&recorded.Operations[index]) }
	}
	return []damage{
		{
			name:     "a get of an old version",
			violates: "linearizable",
			apply:    change(4, func(op *history.Operation) { op.Value = "m11" }),
		},
		{
			name:     "a get after a deletion that shows the object",
			violates: "linearizable",
			apply: change(9, func(op *history.Operation) {
				op.Value, op.Outcome = "m17", history.Done
			}),
		},
		{
			name:     "a lost update",
			violates: "linearizable",
			apply:    change(2, func(op *history.Operation) { op.Outcome = history.Done }),
		},
		{
			name:     "a second creation",
			violates: "linearizable",
			apply:    change(5, func(op *history.Operation) { op.Outcome = history.Done }),
		},
		{
			name:     "a conflict without a reason",
			violates: "linearizable",
			apply:    change(1, func(op *history.Operation) { op.Outcome = history.Conflict }),
		},
		{
			name:     "a write denied that took effect",
			violates: "linearizable",
			apply:    change(0, func(op *history.Operation) { op.Outcome = history.Exists }),
		},
		{name: "an object that is not found while it exists", violates: "linearizable",
			apply: change(6, func(op *history.Operation) { op.Outcome = history.NotFound })},
	}
}
