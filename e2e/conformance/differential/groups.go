package main

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
	conversation *conversation
	step         int
}

// group holds the findings of a class.
type group struct {
	class    string
	count    int
	subjects map[string]int
	// first has the fewest steps before it.
	first finding
}

// groups collects findings. It may be used concurrently.
type groups struct {
	mu      sync.Mutex
	byClass map[string]*group
}

func newGroups() *groups { return &groups{byClass: map[string]*group{}} }

func (g *groups) add(f finding) {
	g.mu.Lock()
	defer g.mu.Unlock()
	one := g.byClass[f.class]
	if one == nil {
		one = &group{class: f.class, first: f, subjects: map[string]int{}}
		g.byClass[f.class] = one
	}
	one.count++
	one.subjects[subject(f)]++
	if f.step < one.first.step || f.step == one.first.step && f.conversation.name < one.first.conversation.name {
		one.first = f
	}
}

func (g *groups) len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.byClass)
}

// subject names what a request is about: its method and resource.
func subject(f finding) string {
	s := f.conversation.steps[f.step]
	return s.method + " " + f.conversation.name
}

// sorted returns the groups, the largest first.
func (g *groups) sorted() []*group {
	return slices.SortedFunc(maps.Values(g.byClass), func(a, b *group) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.class, b.class))
	})
}

// print writes a group with its reproduction.
func (one *group) print(w io.Writer, number int) {
	f := one.first
	fmt.Fprintf(w, "\n=== %d. %s\n    %d times: %s\n", number, one.class, one.count, shorten(strings.Join(slices.Sorted(maps.Keys(one.subjects)), ", "), 300))
	s := f.conversation.steps[f.step]
	fmt.Fprintf(w, "    %s\n    want: %s\n    got:  %s\n", s.label, indented(f.want), indented(f.got))
	for _, before := range f.conversation.steps[:f.step] {
		if before.setup && (strings.Contains(s.path, "{ns}") || !strings.Contains(before.path, "/api/v1/namespaces")) {
			fmt.Fprintf(w, "    %s\n", curl(before, f.conversation.namespace))
		}
	}
	fmt.Fprintf(w, "    %s\n", curl(s, f.conversation.namespace))
}

func indented(s string) string {
	return strings.ReplaceAll(shorten(s, 1500), "\n", "\n          ")
}

// curl returns a step as a command line.
func curl(s step, namespace string) string {
	vars := map[string]string{"ns": namespace}
	var b strings.Builder
	fmt.Fprintf(&b, "curl -sk -X %s", s.method)
	for _, k := range slices.Sorted(maps.Keys(s.header)) {
		for one := range strings.SplitSeq(s.header[k], "\x00") {
			fmt.Fprintf(&b, " -H %s", shellQuote(k+": "+one))
		}
	}
	switch {
	case s.object != nil:
		if _, set := s.header["Content-Type"]; !set {
			fmt.Fprintf(&b, " -H %s", shellQuote("Content-Type: "+string(s.encoding)))
		}
		fmt.Fprintf(&b, " -d %s", shellQuote(shorten(jsonText(expandTree(s.object, vars)), 4000)))
	case s.text != "":
		fmt.Fprintf(&b, " -d %s", shellQuote(shorten(expand(s.text, vars), 4000)))
	}
	fmt.Fprintf(&b, " %s", shellQuote("$SERVER"+expand(s.path, vars)))
	return b.String()
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
