package main

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// table holds the results of all conformance specs.
type table struct {
	rows        []row
	counts      map[state]int
	notes       []string // differences other than those of one spec
	differences int
}

// row is a line of the table.
type row struct {
	name    string
	state   state
	remark  string
	took    time.Duration
	differs bool
}

// compare returns a table of the results that a run selected, and of the specs that focus selects and
// that do not run.
func compare(results map[string]result, want expected, focus *regexp.Regexp) *table {
	t := &table{counts: map[state]int{}}
	for _, name := range slices.Sorted(maps.Keys(results)) {
		got := results[name]
		r := row{name: name, state: got.state, remark: got.message, took: got.took}
		never, skips := reason(want.Skipped, name)
		known, fails := reason(want.Failed, name)
		switch {
		case !got.selected && !(skips && focus.MatchString(name)):
			continue
		case !got.selected:
			r.remark = never
		case got.state == skipped:
			r.differs = true
		case got.state == passed && fails:
			r.differs, r.remark = true, "expected to fail: "+known
		case got.state != passed:
			r.state = failed
			if r.differs = !fails; fails {
				r.remark = known
			}
		}
		t.add(r)
	}
	return t
}

func (t *table) add(r row) {
	t.rows = append(t.rows, r)
	t.counts[r.state]++
	if r.differs {
		t.differences++
	}
}

// requireAll adds differences that only a run of all specs shows.
func (t *table) requireAll(want expected, results map[string]result, least int) {
	for _, entry := range want.unknown(results) {
		t.notes = append(t.notes, "no spec has the name "+entry)
	}
	if ran := t.counts[passed] + t.counts[failed]; ran < least {
		t.notes = append(t.notes, fmt.Sprintf("%d specs ran, at least %d must", ran, least))
	}
	t.differences += len(t.notes)
}

func (t *table) print(w io.Writer) {
	group := ""
	for _, r := range t.rows {
		sig, name, _ := strings.Cut(strings.TrimSuffix(r.name, " ["+conformanceLabel+"]"), " ")
		if sig != group {
			group = sig
			fmt.Fprintln(w, sig)
		}
		mark := " "
		if r.differs {
			mark = "!"
		}
		fmt.Fprintf(w, "%s %-8s %5.0fs  %s", mark, r.state, r.took.Seconds(), name)
		if r.remark != "" {
			fmt.Fprintf(w, ": %s", r.remark)
		}
		fmt.Fprintln(w)
	}
	for _, n := range t.notes {
		fmt.Fprintln(w, "!", n)
	}
	fmt.Fprintf(w, "%d specs: %d passed, %d failed, %d skipped; %d differ from the expected results (!)\n",
		len(t.rows), t.counts[passed], t.counts[failed], t.counts[skipped], t.differences)
}
