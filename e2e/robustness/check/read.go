package check

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"binnacle/e2e/robustness/history"
)

// allReads returns the lists and the initial states of watches.
func allReads(h *history.History) []history.Read {
	all := slices.Clone(h.Reads)
	for _, w := range h.AllWatches() {
		for _, s := range w.Streams {
			if s.State != nil {
				all = append(all, *s.State)
			}
		}
	}
	return all
}

// checkConsistency checks that a list equals the state at its revision.
func checkConsistency(h *history.History, r *report) {
	for _, read := range allReads(h) {
		want := h.ChangeLog.State(read.Selection, read.Revision)
		compareState(r, read.Client, read.End, read.Items, want, read.Revision)
		switch {
		case read.Kind == history.NotOlder && read.Revision < read.MinRevision:
			r.add(read.Client, read.End, "read not older than revision %d: got %d", read.MinRevision, read.Revision)
		case read.Kind == history.Exact && read.Revision != read.MinRevision:
			r.add(read.Client, read.End, "read at exactly revision %d: got %d", read.MinRevision, read.Revision)
		}
	}
}

// compareState reports the differences between a received state and the state in etcd.
func compareState(r *report, subject string, at time.Duration, got []history.Version, want map[string]history.Version,
	revision int64) {
	seen := map[string]bool{}
	for _, v := range got {
		if seen[v.Key] {
			r.add(subject, at, "the state at revision %d contains %s twice", revision, v.Key)
		}
		seen[v.Key] = true
		switch w, exists := want[v.Key]; {
		case !exists:
			r.add(subject, at, "the state at revision %d contains %s of revision %d (%s), which does not exist",
				revision, v.Key, v.Revision, v.Value)
		case w != v:
			r.add(subject, at, "the state at revision %d contains %s of revision %d (%s %s), want %d (%s %s)",
				revision, v.Key, v.Revision, v.Value, v.Color, w.Revision, w.Value, w.Color)
		}
	}
	for key, w := range want {
		if !seen[key] {
			r.add(subject, at, "the state at revision %d lacks %s of revision %d (%s)", revision, key, w.Revision, w.Value)
		}
	}
}

// observation is a revision that some client had seen at a time.
type observation struct {
	at       time.Duration
	revision int64
	source   string // describes the response or event
}

// checkFreshness compares each read of the newest state with the newest revision that any client
// had seen before the read began, in the response to a write, in another read or in an event.
func checkFreshness(h *history.History, r *report) {
	var all []observation
	for _, op := range h.Operations {
		if op.Outcome == history.Done && op.Revision > 0 {
			all = append(all, observation{op.End, op.Revision, string(op.Verb) + " of " + op.Key})
		}
	}
	for _, read := range allReads(h) {
		all = append(all, observation{read.End, read.Revision, "read of " + read.Client})
	}
	for _, w := range h.AllWatches() {
		for _, s := range w.Streams {
			for _, e := range s.Events {
				all = append(all, observation{e.Time, e.Revision, "event of " + w.Name})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b observation) int { return cmp.Compare(a.at, b.at) })
	newest := slices.Clone(all)
	for i := 1; i < len(newest); i++ {
		if newest[i-1].revision > newest[i].revision {
			newest[i] = newest[i-1]
		}
	}
	for _, read := range allReads(h) {
		if read.Kind != history.Newest && read.Kind != history.Paged && read.Kind != history.Initial {
			continue
		}
		n := sort.Search(len(all), func(i int) bool { return all[i].at >= read.Start })
		if n > 0 && newest[n-1].revision > read.Revision {
			r.add(read.Client, read.End, "a %s read that began at %s has revision %d, but %d was known from a %s at %s",
				read.Kind, read.Start, read.Revision, newest[n-1].revision, newest[n-1].source, newest[n-1].at)
		}
	}
}

// checkInformerStores compares an informer's store with the state at the last revision of the
// informer. Before the end a store may be behind its watch.
func checkInformerStores(h *history.History, r *report) {
	if h.SettledRevision == 0 {
		return
	}
	for _, i := range h.Informers {
		end := h.SettledRevision
		if n := len(i.Streams); n > 0 {
			end = max(end, i.Streams[n-1].Last())
		}
		compareState(r, i.Name, 0, i.Final, h.ChangeLog.State(i.Selection, end), end)
	}
}
