package check

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"binnacle/e2e/robustness/history"
)

// allReads returns the lists and the initial states of watches.
func allReads(recorded *history.History) []history.Read {
	reads := slices.Clone(recorded.Reads)
	for _, w := range recorded.AllWatches() {
		for _, s := range w.Streams {
			if s.State != nil {
				reads = append(reads, *s.State)
			}
		}
	}
	return reads
}

// checkConsistency checks that a list equals the state at its revision.
func checkConsistency(recorded *history.History, found *report) {
	for _, read := range allReads(recorded) {
		want := recorded.ChangeLog.State(read.Selection, read.Revision)
		compareState(found, read.Client, read.End, read.Items, want, read.Revision)
		switch {
		case read.Kind == history.NotOlder && read.Revision < read.MinRevision:
			found.add(read.Client, read.End, "read not older than revision %d: got %d", read.MinRevision, read.Revision)
		case read.Kind == history.Exact && read.Revision != read.MinRevision:
			found.add(read.Client, read.End, "read at exactly revision %d: got %d", read.MinRevision, read.Revision)
		}
	}
}

// compareState reports the differences between a received state and the state in etcd.
func compareState(found *report, subject string, at time.Duration, got []history.Version, want map[string]history.Version,
	revision int64) {
	seen := map[string]bool{}
	for _, version := range got {
		if seen[version.Key] {
			found.add(subject, at, "the state at revision %d contains %s twice", revision, version.Key)
		}
		seen[version.Key] = true
		switch wanted, exists := want[version.Key]; {
		case !exists:
			found.add(subject, at, "the state at revision %d contains %s of revision %d (%s), which does not exist",
				revision, version.Key, version.Revision, version.Value)
		case wanted != version:
			found.add(subject, at, "the state at revision %d contains %s of revision %d (%s %s), want %d (%s %s)",
				revision, version.Key, version.Revision, version.Value, version.Color, wanted.Revision, wanted.Value, wanted.Color)
		}
	}
	for key, wanted := range want {
		if !seen[key] {
			found.add(subject, at, "the state at revision %d lacks %s of revision %d (%s)", revision, key, wanted.Revision, wanted.Value)
		}
	}
}

// observation is a revision that some client had seen at a time.
type observation struct {
	time     time.Duration
	revision int64
	source   string // describes the response or event
}

// checkFreshness compares each read of the newest state with the newest revision that any client
// had seen before the read began, in the response to a write, in another read or in an event.
func checkFreshness(recorded *history.History, found *report) {
	var observations []observation
	for _, op := range recorded.Operations {
		if op.Outcome == history.Done && op.Revision > 0 {
			observations = append(observations, observation{op.End, op.Revision, string(op.Verb) + " of " + op.Key})
		}
	}
	for _, read := range allReads(recorded) {
		observations = append(observations, observation{read.End, read.Revision, "read of " + read.Client})
	}
	for _, w := range recorded.AllWatches() {
		for _, s := range w.Streams {
			for _, e := range s.Events {
				observations = append(observations, observation{e.Time, e.Revision, "event of " + w.Name})
			}
		}
	}
	slices.SortStableFunc(observations, func(a, b observation) int { return cmp.Compare(a.time, b.time) })
	newest := slices.Clone(observations)
	for i := 1; i < len(newest); i++ {
		if newest[i-1].revision > newest[i].revision {
			newest[i] = newest[i-1]
		}
	}
	for _, read := range allReads(recorded) {
		if read.Kind != history.Newest && read.Kind != history.Paged && read.Kind != history.Initial {
			continue
		}
		n := sort.Search(len(observations), func(i int) bool { return observations[i].time >= read.Start })
		if n > 0 && newest[n-1].revision > read.Revision {
			found.add(read.Client, read.End, "a %s read that began at %s has revision %d, but %d was known from a %s at %s",
				read.Kind, read.Start, read.Revision, newest[n-1].revision, newest[n-1].source, newest[n-1].time)
		}
	}
}

// checkInformerStores compares an informer's store with the state at the last revision of the
// informer. Before the end a store may be behind its watch.
func checkInformerStores(recorded *history.History, found *report) {
	if recorded.SettledRevision == 0 {
		return
	}
	for _, i := range recorded.Informers {
		end := recorded.SettledRevision
		if n := len(i.Streams); n > 0 {
			end = max(end, i.Streams[n-1].Last())
		}
		compareState(found, i.Name, 0, i.Final, recorded.ChangeLog.State(i.Selection, end), end)
	}
}
