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

// truth is about two objects. One is created at revision 11, changes at 13, 15 and 17 and is
// deleted at 19. The other is created at 12, and its color changes from red to blue at 14. Nothing
// happens between 20 and 30.
func truth() *history.ChangeLog {
	t := &history.ChangeLog{Revision: 30}
	add := func(name string, revision int64, color string) {
		v := history.Version{Key: "configmaps/ns/" + name, Revision: revision, Value: fmt.Sprint("m", revision), Color: color}
		t.Changes = append(t.Changes, history.Change{Version: v, Time: at(revision)})
	}
	add("a", 11, "red")
	add("b", 12, "red")
	add("a", 13, "red")
	add("b", 14, "blue")
	add("a", 15, "red")
	add("a", 17, "red")
	t.Changes = append(t.Changes, history.Change{Version: history.Version{Key: "configmaps/ns/a", Revision: 19}, Deleted: true, Time: at(19)})
	return t
}

// at returns the time of a revision.
func at(revision int64) time.Duration { return time.Duration(revision) * time.Millisecond }

var all = history.Selection{Resource: "configmaps"}

// good returns a history without violations: a watch in two streams, a watch of red objects, an
// informer, reads of all kinds, and operations.
func good() *history.History {
	t := truth()
	initial := state(t, all, history.Newest, 10)
	events := t.Events(all)
	mark := func(r int64) history.Event {
		return history.Event{Time: at(r), Type: history.Bookmark, Version: history.Version{Revision: r}}
	}
	w := history.Watch{Name: "w", Selection: all, Streams: []history.Stream{
		{State: initial, FromRevision: 10, Start: at(10), Events: append(slices.Clone(events[:4]), mark(14))},
		{FromRevision: 14, Start: at(15), Events: append(slices.Clone(events[4:]), mark(20))},
	}}
	red := history.Selection{Resource: "configmaps", Color: "red"}
	colored := history.Watch{Name: "red", Selection: red, Streams: []history.Stream{
		{State: state(t, red, history.Initial, 12), FromRevision: 12, Start: at(12), Events: history.Within(t.Events(red), 12, 30)},
	}}
	informer := w
	informer.Name = "i"
	informer.Streams = slices.Clone(w.Streams)
	for i := range informer.Streams {
		informer.Streams[i].Events = slices.Clone(w.Streams[i].Events)
	}
	h := &history.History{
		ChangeLog: t, SettledRevision: 20, Watches: []*history.Watch{&w, &colored},
		Informers: []*history.Informer{{Watch: informer, Final: state(t, all, history.Any, 20).Items}},
		Reads: []history.Read{
			*state(t, all, history.Newest, 13), *state(t, all, history.Any, 11), *state(t, red, history.Paged, 17), *state(t, red, history.Newest, 20),
		},
	}
	exact := *state(t, all, history.Exact, 12)
	exact.MinRevision = 12
	later := *state(t, all, history.NotOlder, 15)
	later.MinRevision = 12
	h.Reads = append(h.Reads, exact, later)
	h.Operations = operations()
	return h
}

// state returns a correct read at the time of its revision.
func state(t *history.ChangeLog, s history.Selection, kind history.ReadKind, revision int64) *history.Read {
	r := &history.Read{Kind: kind, Client: "reader", Selection: s, Start: at(revision), End: at(revision), Revision: revision}
	for _, v := range t.State(s, revision) {
		r.Items = append(r.Items, v)
	}
	return r
}

func operations() []history.Operation {
	op := func(client int, verb history.Verb, expected, mark string, revision int64, outcome history.Outcome) history.Operation {
		return history.Operation{
			Client: client, Verb: verb, Key: "configmaps/ns/a", Expected: expected, Value: mark, Outcome: outcome,
			Revision: revision, Start: at(revision), End: at(revision),
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

func TestCorrectHistoryHasNoViolations(t *testing.T) {
	for _, v := range check.All(good()) {
		t.Error(v)
	}
}

// damage is a server error in a history and the guarantees that it violates.
type damage struct {
	name string
	by   string // exactly the violated guarantees, separated by spaces
	do   func(*history.History)
}

func TestCheckersFindDamage(t *testing.T) {
	for _, d := range slices.Concat(watchDamages(), readDamages(), operationDamages()) {
		t.Run(d.name, func(t *testing.T) {
			h := good()
			d.do(h)
			found := map[string]bool{}
			for _, v := range check.All(h) {
				found[v.Guarantee] = true
			}
			for _, c := range check.Checkers() {
				if want := slices.Contains(strings.Fields(d.by), c.Guarantee); found[c.Guarantee] != want {
					t.Errorf("broken %s: %t, want %t: %v", c.Guarantee, found[c.Guarantee], want, c.Check(h))
				}
			}
		})
	}
}

// first and second return the streams of the first watch.
func first(h *history.History) *history.Stream  { return &h.Watches[0].Streams[0] }
func second(h *history.History) *history.Stream { return &h.Watches[0].Streams[1] }

func watchDamages() []damage {
	return []damage{
		{name: "two events swapped", by: "ordered", do: func(h *history.History) {
			e := first(h).Events
			e[1], e[2] = e[2], e[1]
		}},
		{name: "an event delivered twice", by: "unique", do: func(h *history.History) {
			s := first(h)
			s.Events = slices.Insert(s.Events, 2, s.Events[1])
		}},
		{name: "an event delivered again by the next stream", by: "unique resumable bookmarkable", do: func(h *history.History) {
			s := second(h)
			s.Events = slices.Insert(s.Events, 0, first(h).Events[3])
		}},
		{name: "a missing event", by: "reliable bookmarkable", do: func(h *history.History) {
			s := first(h)
			s.Events = slices.Delete(s.Events, 1, 2)
		}},
		{name: "a missing first event after a resumption", by: "reliable resumable bookmarkable", do: func(h *history.History) {
			s := second(h)
			s.Events = slices.Delete(s.Events, 0, 1)
		}},
		{name: "missing last events", by: "reliable", do: func(h *history.History) {
			s := second(h)
			s.Events = s.Events[:1]
		}},
		{name: "a watch that never began", by: "reliable", do: func(h *history.History) { h.Watches[1].Streams = nil }},
		{name: "a gap between two streams", by: "resumable reliable", do: func(h *history.History) {
			first(h).Events = first(h).Events[:3]
			second(h).Events = second(h).Events[:3]
		}},
		{name: "the content of an older version", by: "atomic", do: func(h *history.History) { first(h).Events[2].Value = "m11" }},
		{name: "a label that is not of this version", by: "atomic", do: func(h *history.History) { first(h).Events[3].Color = "red" }},
		{name: "an addition delivered as a change", by: "atomic", do: func(h *history.History) { first(h).Events[0].Type = history.Modified }},
		{name: "an event that did not happen", by: "atomic", do: func(h *history.History) {
			s := second(h)
			e := s.Events[1]
			e.Revision, e.Value = 18, "m18"
			s.Events = slices.Insert(s.Events, 2, e)
		}},
		{name: "an object that leaves the selection, delivered as a change", by: "atomic", do: func(h *history.History) {
			for i := range h.Watches[1].Streams[0].Events {
				if e := &h.Watches[1].Streams[0].Events[i]; e.Revision == 14 {
					e.Type = history.Modified
				}
			}
		}},
		{name: "a bookmark too early", by: "bookmarkable", do: func(h *history.History) {
			first(h).Events[4].Revision = 13
			first(h).Events = slices.Insert(first(h).Events, 2, first(h).Events[4])
			first(h).Events = slices.Delete(first(h).Events, 5, 6)
		}},
		{name: "bookmarks with decreasing revisions", by: "bookmarkable ordered", do: func(h *history.History) {
			s := second(h)
			b := s.Events[len(s.Events)-1]
			b.Revision = 15
			s.Events = append(s.Events, b)
		}},
		{name: "an informer's store that lacks an object", by: "exact", do: func(h *history.History) { h.Informers[0].Final = nil }},
		{name: "an informer's store that keeps a deleted object", by: "exact", do: func(h *history.History) {
			h.Informers[0].Final = append(h.Informers[0].Final, history.Version{Key: "configmaps/ns/a", Revision: 17, Value: "m17", Color: "red"})
		}},
	}
}

func readDamages() []damage {
	return []damage{
		{name: "a read of an old state", by: "fresh linearizable", do: func(h *history.History) {
			r := state(h.ChangeLog, all, history.Newest, 13)
			r.Start, r.End = at(18), at(18)
			h.Reads = append(h.Reads, *r)
		}},
		{name: "a watch that begins with an old state", by: "fresh", do: func(h *history.History) {
			s := h.Watches[1].Streams[0].State
			s.Start, s.End = at(16), at(16)
		}},
		{name: "a list that lacks an object", by: "consistent linearizable", do: func(h *history.History) {
			h.Reads[0].Items = slices.DeleteFunc(h.Reads[0].Items, func(v history.Version) bool { return v.Key == "configmaps/ns/a" })
		}},
		{name: "a list with an outdated object", by: "consistent", do: func(h *history.History) {
			r := &h.Reads[2]
			r.Items = append(r.Items, history.Version{Key: "configmaps/ns/b", Revision: 12, Value: "m12", Color: "red"})
		}},
		{name: "a page returned twice", by: "consistent", do: func(h *history.History) {
			r := &h.Reads[2]
			r.Items = append(r.Items, r.Items[0])
		}},
		{name: "a read that is older than requested", by: "consistent", do: func(h *history.History) { h.Reads[5].MinRevision = 16 }},
		{name: "a read that is not at the requested revision", by: "consistent", do: func(h *history.History) { h.Reads[4].MinRevision = 11 }},
	}
}

func operationDamages() []damage {
	change := func(i int, f func(*history.Operation)) func(*history.History) {
		return func(h *history.History) { f(&h.Operations[i]) }
	}
	return []damage{
		{name: "a get of an old version", by: "linearizable", do: change(4, func(op *history.Operation) { op.Value = "m11" })},
		{name: "a get after a deletion that shows the object", by: "linearizable", do: change(9, func(op *history.Operation) {
			op.Value, op.Outcome = "m17", history.Done
		})},
		{name: "a lost update", by: "linearizable", do: change(2, func(op *history.Operation) { op.Outcome = history.Done })},
		{name: "a second creation", by: "linearizable", do: change(5, func(op *history.Operation) { op.Outcome = history.Done })},
		{name: "a conflict without a reason", by: "linearizable", do: change(1, func(op *history.Operation) { op.Outcome = history.Conflict })},
		{name: "a write denied that took effect", by: "linearizable", do: change(0, func(op *history.Operation) { op.Outcome = history.Exists })},
		{name: "an object that is not found while it exists", by: "linearizable",
			do: change(6, func(op *history.Operation) { op.Outcome = history.NotFound })},
	}
}
