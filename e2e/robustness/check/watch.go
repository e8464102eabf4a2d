package check

import (
	"time"

	"binnacle/e2e/robustness/history"
)

// changeID identifies a change of an object.
type changeID struct {
	key      string
	revision int64
}

// checkOrder checks that the revisions of a session's events never decrease.
func checkOrder(recorded *history.History, found *report) {
	for _, s := range allSessions(recorded) {
		last := s.Start.Revision
		for _, e := range s.Events() {
			if e.Revision < last {
				found.add(s.Name, e.Time, "%s arrives after revision %d", formatEvent(e), last)
			}
			last = max(last, e.Revision)
		}
	}
}

// checkUnique checks that a session delivers each event once.
func checkUnique(recorded *history.History, found *report) {
	for _, session := range allSessions(recorded) {
		seen := map[changeID]time.Duration{}
		for _, event := range session.Events() {
			if event.Type == history.Bookmark {
				continue
			}
			at := changeID{event.Key, event.Revision}
			if before, again := seen[at]; again {
				found.add(session.Name, event.Time, "%s was already delivered at %s", formatEvent(event), before)
			}
			seen[at] = event.Time
		}
	}
}

// checkEventVersions checks that each event is a stored change of the selection, with its type and
// version.
func checkEventVersions(recorded *history.History, found *report) {
	for _, watch := range recorded.AllWatches() {
		stored := map[changeID]history.Event{}
		for _, event := range recorded.ChangeLog.Events(watch.Selection) {
			stored[changeID{event.Key, event.Revision}] = event
		}
		for _, stream := range watch.Streams {
			for _, event := range stream.Events {
				if event.Type == history.Bookmark {
					continue
				}
				want, happened := stored[changeID{event.Key, event.Revision}]
				switch {
				case !happened:
					found.add(watch.Name, event.Time, "%s does not match any change of the selection", formatEvent(event))
				case want.Type != event.Type || want.Version != event.Version:
					found.add(watch.Name, event.Time, "got %s, want %s", formatEvent(event), formatEvent(want))
				}
			}
		}
	}
}

// checkComplete checks that all changes were delivered, up to the last revision of each session.
// The last session of a watch must also reach the settled revision.
func checkComplete(recorded *history.History, found *report) {
	for _, session := range allSessions(recorded) {
		delivered := map[changeID]bool{}
		for _, e := range session.Events() {
			delivered[changeID{e.Key, e.Revision}] = true
		}
		end := session.Last()
		if session.Final {
			end = max(end, recorded.SettledRevision)
		}
		for _, want := range history.Within(recorded.ChangeLog.Events(session.Selection), session.Start.Revision, end) {
			if !delivered[changeID{want.Key, want.Revision}] {
				found.add(session.Name, want.Time, "%s was not delivered to the session that began at revision %d and ended at %d",
					formatEvent(want), session.Start.Revision, session.Last())
			}
		}
	}
	for _, w := range recorded.AllWatches() {
		if len(w.Sessions()) == 0 {
			found.add(w.Name, 0, "the watch never began")
		}
	}
}

// checkResumption checks that the first event of a stream is the first change after the revision at
// which the stream resumed.
func checkResumption(recorded *history.History, found *report) {
	for _, session := range allSessions(recorded) {
		truth := recorded.ChangeLog.Events(session.Selection)
		for i, stream := range session.Streams {
			if i > 0 && stream.FromRevision != session.Streams[i-1].Last() {
				found.add(session.Name, stream.Start, "resumes at revision %d, but the previous stream ended at %d",
					stream.FromRevision, session.Streams[i-1].Last())
			}
			var first *history.Event
			for j := range stream.Events {
				event := &stream.Events[j]
				if event.Revision <= stream.FromRevision && event.Type != history.Bookmark {
					found.add(session.Name, event.Time, "%s was delivered by a stream that resumed at revision %d", formatEvent(*event),
						stream.FromRevision)
				}
				if first == nil && event.Type != history.Bookmark {
					first = event
				}
			}
			due := history.Within(truth, stream.FromRevision, stream.Last())
			if len(due) == 0 {
				continue
			}
			if first == nil || first.Revision != due[0].Revision || first.Key != due[0].Key {
				found.add(session.Name, stream.Start, "a stream that resumed at revision %d does not begin with %s",
					stream.FromRevision, formatEvent(due[0]))
			}
		}
	}
}

// checkBookmarks checks that no event follows a bookmark that covers it.
func checkBookmarks(recorded *history.History, found *report) {
	for _, session := range allSessions(recorded) {
		truth := recorded.ChangeLog.Events(session.Selection)
		delivered := map[changeID]bool{}
		var marked, covered int64 = 0, session.Start.Revision
		for _, event := range session.Events() {
			if event.Type != history.Bookmark {
				delivered[changeID{event.Key, event.Revision}] = true
				if event.Revision <= marked {
					found.add(session.Name, event.Time, "%s arrives after a bookmark at revision %d", formatEvent(event), marked)
				}
				continue
			}
			if event.Revision < marked {
				found.add(session.Name, event.Time, "a bookmark at revision %d arrives after one at %d", event.Revision, marked)
			}
			marked = max(marked, event.Revision)
			for _, want := range history.Within(truth, covered, marked) {
				if !delivered[changeID{want.Key, want.Revision}] {
					found.add(session.Name, event.Time, "a bookmark at revision %d arrives before %s", event.Revision, formatEvent(want))
				}
			}
			covered = max(covered, marked)
		}
	}
}
