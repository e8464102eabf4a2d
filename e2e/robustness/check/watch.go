package check

import (
	"time"

	"binnacle/e2e/robustness/history"
)

// change names one change of one object.
type change struct {
	key      string
	revision int64
}

func ordered(h *history.History, r *report) {
	for _, s := range sessions(h) {
		last := s.Start.Revision
		for _, e := range s.Events() {
			if e.Revision < last {
				r.add(s.Name, e.At, "%s comes after revision %d", show(e), last)
			}
			last = max(last, e.Revision)
		}
	}
}

func unique(h *history.History, r *report) {
	for _, s := range sessions(h) {
		seen := map[change]time.Duration{}
		for _, e := range s.Events() {
			if e.Type == history.Bookmark {
				continue
			}
			at := change{e.Key, e.Revision}
			if before, again := seen[at]; again {
				r.add(s.Name, e.At, "%s was told at %s already", show(e), before)
			}
			seen[at] = e.At
		}
	}
}

func atomic(h *history.History, r *report) {
	for _, w := range h.Following() {
		stored := map[change]history.Event{}
		for _, e := range h.Truth.Events(w.Selection) {
			stored[change{e.Key, e.Revision}] = e
		}
		for _, stream := range w.Streams {
			for _, e := range stream.Events {
				if e.Type == history.Bookmark {
					continue
				}
				want, happened := stored[change{e.Key, e.Revision}]
				switch {
				case !happened:
					r.add(w.Name, e.At, "%s did not happen to what is selected", show(e))
				case want.Type != e.Type || want.Version != e.Version:
					r.add(w.Name, e.At, "%s is in truth %s", show(e), show(want))
				}
			}
		}
	}
}

// reliable compares what was told with all that had to be told: up to the last
// revision of each session, and for the last session also up to the revision
// that all had time to reach.
func reliable(h *history.History, r *report) {
	for _, s := range sessions(h) {
		told := map[change]bool{}
		for _, e := range s.Events() {
			told[change{e.Key, e.Revision}] = true
		}
		end := s.Last()
		if s.Final {
			end = max(end, h.Settled)
		}
		for _, want := range history.Within(h.Truth.Events(s.Selection), s.Start.Revision, end) {
			if !told[change{want.Key, want.Revision}] {
				r.add(s.Name, want.At, "%s was not told to the session that began at revision %d and ended at %d",
					show(want), s.Start.Revision, s.Last())
			}
		}
	}
	for _, w := range h.Following() {
		if len(w.Sessions()) == 0 {
			r.add(w.Name, 0, "the watch never began")
		}
	}
}

// resumable looks at the seams: what a stream tells first is what comes next
// after the revision that it was asked to go on from.
func resumable(h *history.History, r *report) {
	for _, s := range sessions(h) {
		truth := h.Truth.Events(s.Selection)
		for i, stream := range s.Streams {
			if i > 0 && stream.From != s.Streams[i-1].Last() {
				r.add(s.Name, stream.Begun, "goes on after revision %d, but the stream before ended at %d", stream.From, s.Streams[i-1].Last())
			}
			var first *history.Event
			for j := range stream.Events {
				e := &stream.Events[j]
				if e.Revision <= stream.From && e.Type != history.Bookmark {
					r.add(s.Name, e.At, "%s is told by a stream that goes on after revision %d", show(*e), stream.From)
				}
				if first == nil && e.Type != history.Bookmark {
					first = e
				}
			}
			due := history.Within(truth, stream.From, stream.Last())
			if len(due) == 0 {
				continue
			}
			if first == nil || first.Revision != due[0].Revision || first.Key != due[0].Key {
				r.add(s.Name, stream.Begun, "a stream that goes on after revision %d does not begin with %s", stream.From, show(due[0]))
			}
		}
	}
}

func bookmarkable(h *history.History, r *report) {
	for _, s := range sessions(h) {
		truth := h.Truth.Events(s.Selection)
		told := map[change]bool{}
		var marked, covered int64 = 0, s.Start.Revision
		for _, e := range s.Events() {
			if e.Type != history.Bookmark {
				told[change{e.Key, e.Revision}] = true
				if e.Revision <= marked {
					r.add(s.Name, e.At, "%s comes after a bookmark at revision %d", show(e), marked)
				}
				continue
			}
			if e.Revision < marked {
				r.add(s.Name, e.At, "a bookmark at revision %d comes after one at %d", e.Revision, marked)
			}
			marked = max(marked, e.Revision)
			for _, want := range history.Within(truth, covered, marked) {
				if !told[change{want.Key, want.Revision}] {
					r.add(s.Name, e.At, "a bookmark at revision %d comes before %s", e.Revision, show(want))
				}
			}
			covered = max(covered, marked)
		}
	}
}
