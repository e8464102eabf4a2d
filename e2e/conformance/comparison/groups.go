package comparison

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
)

// finding is one difference with the request that shows it.
type finding struct {
	difference
	scenario *Scenario
	step     int
}

// group holds the findings of a class.
type group struct {
	class    string
	accepted bool
	count    int
	subjects map[string]int
	// first has the fewest steps before it.
	first finding
}

// Groups collects findings. It may be used concurrently.
type Groups struct {
	accepted []*acceptedDifference

	mu      sync.Mutex
	byClass map[groupKey]*group
}

// groupKey identifies a group. Entries may accept a class for some subjects only.
type groupKey struct {
	class    string
	accepted bool
}

func newGroups(list []*acceptedDifference) *Groups {
	return &Groups{accepted: list, byClass: map[groupKey]*group{}}
}

func (g *Groups) add(f finding) {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := groupKey{f.class, isAccepted(g.accepted, f.class, subject(f))}
	one := g.byClass[key]
	if one == nil {
		one = &group{class: f.class, accepted: key.accepted, first: f, subjects: map[string]int{}}
		g.byClass[key] = one
	}
	one.count++
	one.subjects[subject(f)]++
	if f.step < one.first.step || f.step == one.first.step && f.scenario.Name < one.first.scenario.Name {
		one.first = f
	}
}

func (g *Groups) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.byClass)
}

// Unaccepted returns the number of findings that no entry accepts.
func (g *Groups) Unaccepted() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, one := range g.byClass {
		if !one.accepted {
			n += one.count
		}
	}
	return n
}

// subject returns the method of a request and the name of its scenario.
func subject(f finding) string {
	s := f.scenario.Steps[f.step]
	return s.Method + " " + f.scenario.Name
}

// sorted returns the groups, the largest first.
func (g *Groups) sorted() []*group {
	return slices.SortedFunc(maps.Values(g.byClass), func(a, b *group) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.class, b.class))
	})
}

// print writes a group with its reproduction.
func (one *group) print(w io.Writer, number int) {
	f := one.first
	fmt.Fprintf(w, "\n=== %d. %s\n    %d times: %s\n", number, one.class, one.count, Shorten(strings.Join(slices.Sorted(maps.Keys(one.subjects)), ", "), 300))
	s := f.scenario.Steps[f.step]
	fmt.Fprintf(w, "    %s\n    want: %s\n    got:  %s\n", s.Label, indented(f.want), indented(f.got))
	if f.scenario.Needs != "" {
		fmt.Fprintf(w, "    %s\n", f.scenario.Needs)
	}
	for _, before := range f.scenario.Steps[:f.step] {
		if before.Setup && (strings.Contains(s.Path, "{ns}") || !strings.Contains(before.Path, "/api/v1/namespaces")) {
			fmt.Fprintf(w, "    %s\n", curl(before, f.scenario.Namespace))
		}
	}
	fmt.Fprintf(w, "    %s\n", curl(s, f.scenario.Namespace))
}

func indented(s string) string {
	return strings.ReplaceAll(Shorten(s, 1500), "\n", "\n          ")
}

// curl returns a step as a command line.
func curl(s Step, namespace string) string {
	vars := map[string]string{"ns": namespace}
	var b strings.Builder
	fmt.Fprintf(&b, "curl -sk -X %s", s.Method)
	for _, k := range slices.Sorted(maps.Keys(s.Header)) {
		for one := range strings.SplitSeq(s.Header[k], "\x00") {
			fmt.Fprintf(&b, " -H %s", shellQuote(k+": "+one))
		}
	}
	switch {
	case s.Object != nil:
		if _, set := s.Header["Content-Type"]; !set {
			fmt.Fprintf(&b, " -H %s", shellQuote("Content-Type: "+string(s.Encoding)))
		}
		fmt.Fprintf(&b, " -d %s", shellQuote(Shorten(JSONText(expandTree(s.Object, vars)), 4000)))
	case s.Text != "":
		fmt.Fprintf(&b, " -d %s", shellQuote(Shorten(expand(s.Text, vars), 4000)))
	}
	fmt.Fprintf(&b, " %s", shellQuote("$SERVER"+expand(s.Path, vars)))
	return b.String()
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
