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
	t := &history.ChangeLog{Revision: 30}
	add := func(name string, revision int64, color string) {
		v := history.Version{Key: "configmaps/ns/" + name, Revision: revision, Value: fmt.Sprint("m", revision), Color: color}
		t.Changes = append(t.Changes, history.Change{Version: v, Time: timeOf(revision)})
	}
	add("a", 11, "red")
	add("b", 12, "red")
	add("a", 13, "red")
	add("b", 14, "blue")
	add("a", 15, "red")
	add("a", 17, "red")
	t.Changes = append(t.Changes, history.Change{
		Version: history.Version{Key: "configmaps/ns/a", Revision: 19},
		Deleted: true,
		Time:    timeOf(19),
	})
	return t
}

// timeOf returns the time of a revision.
func timeOf(revision int64) time.Duration { return time.Duration(revision) * time.Millisecond }

var configMaps = history.Selection{Resource: "configmaps"}

// validHistory returns a history without violations: a watch in two streams, a watch of red
// objects, an informer, reads of all kinds, and operations.
func validHistory() *history.History {
	t := changeLog()
	initial := readAt(t, configMaps, history.Newest, 10)
	events := t.Events(configMaps)
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
			State:        readAt(t, red, history.Initial, 12),
			FromRevision: 12,
			Start:        timeOf(12),
			Events:       history.Within(t.Events(red), 12, 30),
		},
	}}
	informer := watch
	informer.Name = "i"
	informer.Streams = slices.Clone(watch.Streams)
	for i := range informer.Streams {
		informer.Streams[i].Events = slices.Clone(watch.Streams[i].Events)
	}
	h := &history.History{
		ChangeLog: t, SettledRevision: 20, Watches: []*history.Watch{&watch, &colored},
		Informers: []*history.Informer{{Watch: informer, Final: readAt(t, configMaps, history.Any, 20).Items}},
		Reads: []history.Read{
			*readAt(t, configMaps, history.Newest, 13), *readAt(t, configMaps, history.Any, 11),
			*readAt(t, red, history.Paged, 17), *readAt(t, red, history.Newest, 20),
		},
	}
	exact := *readAt(t, configMaps, history.Exact, 12)
	exact.MinRevision = 12
	later := *readAt(t, configMaps, history.NotOlder, 15)
	later.MinRevision = 12
	h.Reads = append(h.Reads, exact, later)
	h.Operations = operations()
	return h
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
			h := validHistory()
			damage.apply(h)
			found := map[string]bool{}
			for _, v := range check.All(h) {
				found[v.Guarantee] = true
			}
			for _, c := range check.Checkers() {
				if want := slices.Contains(strings.Fields(damage.violates), c.Guarantee); found[c.Guarantee] != want {
					t.Errorf("violation of %s found: %t, want %t: %v", c.Guarantee, found[c.Guarantee], want, c.Check(h))
				}
			}
		})
	}
}

// firstStream returns the first stream of the first watch.
func firstStream(h *history.History) *history.Stream { return &h.Watches[0].Streams[0] }

// secondStream returns the second stream of the first watch.
func secondStream(h *history.History) *history.Stream { return &h.Watches[0].Streams[1] }

// watchDamages returns errors in the events of watches and in the stores of informers.
func watchDamages() []damage {
	return []damage{
		{name: "two events swapped", violates: "ordered", apply: func(h *history.History) {
			e := firstStream(h).Events
			e[1], e[2] = e[2], e[1]
		}},
		{name: "an event delivered twice", violates: "unique", apply: func(h *history.History) {
			s := firstStream(h)
			s.Events = slices.Insert(s.Events, 2, s.Events[1])
		}},
		{
			name:     "an event delivered again by the next stream",
			violates: "unique resumable bookmarkable",
			apply: func(h *history.History) {
				s := secondStream(h)
				s.Events = slices.Insert(s.Events, 0, firstStream(h).Events[3])
			},
		},
		{name: "a missing event", violates: "reliable bookmarkable", apply: func(h *history.History) {
			s := firstStream(h)
			s.Events = slices.Delete(s.Events, 1, 2)
		}},
		{
			name:     "a missing first event after a resumption",
			violates: "reliable resumable bookmarkable",
			apply: func(h *history.History) {
				s := secondStream(h)
				s.Events = slices.Delete(s.Events, 0, 1)
			},
		},
		{name: "missing last events", violates: "reliable", apply: func(h *history.History) {
			s := secondStream(h)
			s.Events = s.Events[:1]
		}},
		{name: "a watch that never began", violates: "reliable", apply: func(h *history.History) { h.Watches[1].Streams = nil }},
		{name: "a gap between two streams", violates: "resumable reliable", apply: func(h *history.History) {
			firstStream(h).Events = firstStream(h).Events[:3]
			secondStream(h).Events = secondStream(h).Events[:3]
		}},
		{
			name:     "the content of an older version",
			violates: "atomic",
			apply:    func(h *history.History) { firstStream(h).Events[2].Value = "m11" },
		},
		{
			name:     "a label that is not of this version",
			violates: "atomic",
			apply:    func(h *history.History) { firstStream(h).Events[3].Color = "red" },
		},
		{
			name:     "an addition delivered as a change",
			violates: "atomic",
			apply:    func(h *history.History) { firstStream(h).Events[0].Type = history.Modified },
		},
		{name: "an event that did not happen", violates: "atomic", apply: func(h *history.History) {
			s := secondStream(h)
			e := s.Events[1]
			e.Revision, e.Value = 18, "m18"
			s.Events = slices.Insert(s.Events, 2, e)
		}},
		{name: "an object that leaves the selection, delivered as a change", violates: "atomic", apply: func(h *history.History) {
			for i := range h.Watches[1].Streams[0].Events {
				if e := &h.Watches[1].Streams[0].Events[i]; e.Revision == 14 {
					e.Type = history.Modified
				}
			}
		}},
		{name: "a bookmark too early", violates: "bookmarkable", apply: func(h *history.History) {
			firstStream(h).Events[4].Revision = 13
			firstStream(h).Events = slices.Insert(firstStream(h).Events, 2, firstStream(h).Events[4])
			firstStream(h).Events = slices.Delete(firstStream(h).Events, 5, 6)
		}},
		{name: "bookmarks with decreasing revisions", violates: "bookmarkable ordered", apply: func(h *history.History) {
			s := secondStream(h)
			b := s.Events[len(s.Events)-1]
			b.Revision = 15
			s.Events = append(s.Events, b)
		}},
		{
			name:     "an informer's store that lacks an object",
			violates: "exact",
			apply:    func(h *history.History) { h.Informers[0].Final = nil },
		},
		{name: "an informer's store that keeps a deleted object", violates: "exact", apply: func(h *history.History) {
			h.Informers[0].Final = append(h.Informers[0].Final, history.Version{
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
		{name: "a read of an old state", violates: "fresh linearizable", apply: func(h *history.History) {
			r := readAt(h.ChangeLog, configMaps, history.Newest, 13)
			r.Start, r.End = timeOf(18), timeOf(18)
			h.Reads = append(h.Reads, *r)
		}},
		{name: "a watch that begins with an old state", violates: "fresh", apply: func(h *history.History) {
			s := h.Watches[1].Streams[0].State
			s.Start, s.End = timeOf(16), timeOf(16)
		}},
		{name: "a list that lacks an object", violates: "consistent linearizable", apply: func(h *history.History) {
			h.Reads[0].Items = slices.DeleteFunc(h.Reads[0].Items, func(v history.Version) bool {
				return v.Key == "configmaps/ns/a"
			})
		}},
		{name: "a list with an outdated object", violates: "consistent", apply: func(h *history.History) {
			r := &h.Reads[2]
			r.Items = append(r.Items, history.Version{Key: "configmaps/ns/b", Revision: 12, Value: "m12", Color: "red"})
		}},
		{name: "a page returned twice", violates: "consistent", apply: func(h *history.History) {
			r := &h.Reads[2]
			r.Items = append(r.Items, r.Items[0])
		}},
		{
			name:     "a read that is older than requested",
			violates: "consistent",
			apply:    func(h *history.History) { h.Reads[5].MinRevision = 16 },
		},
		{
			name:     "a read that is not at the requested revision",
			violates: "consistent",
			apply:    func(h *history.History) { h.Reads[4].MinRevision = 11 },
		},
	}
}

// operationDamages returns errors in the responses to operations.
func operationDamages() []damage {
	change := func(i int, f func(*history.Operation)) func(*history.History) {
		return func(h *history.History) { f(&h.Operations[i]) }
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
