package kind

import (
	"strconv"

	"k8s.io/client-go/util/jsonpath"
)

// Bounds of a column's path. All that it finds is collected, to show the first of it.
const (
	// maxPath is how many bytes it has: what parses it calls itself for each step.
	maxPath = 16 << 10
	// maxSteps is how many steps it has: objects are no deeper, so that more find nothing.
	maxSteps = 500
	// maxInner is how many of them stand in brackets: each is taken from every value that is found before.
	maxInner = 64
	// maxTimes is how often it may come to one value.
	maxTimes = 8
)

// parsePath parses the path of a column, if it can and what the path finds is bounded by what there is
// in an object. Names, indexes, filters and stars come to a value once, and so does one descent.
func parsePath(path string) (*jsonpath.ListNode, bool) {
	if len(path) > maxPath {
		return nil, false
	}
	parsed, err := jsonpath.Parse("", "{"+path+"}")
	if err != nil { // definitions may have such a path
		return nil, false
	}
	g := growth{times: max(1, len(parsed.Root.Nodes))} // after }{ another path begins
	g.list(parsed.Root)
	return parsed.Root, g.steps <= maxSteps && g.inner <= maxInner && g.descents <= 1 && g.times <= maxTimes && !g.ranges
}

// growth is what makes a path come to more values than there are in an object.
type growth struct {
	steps    int
	inner    int  // steps in brackets
	descents int  // ..
	times    int  // that it comes to one value, for its lists in brackets
	ranges   bool // for each value all that follows begins anew, and the parsed path changes
}

func (g *growth) list(l *jsonpath.ListNode) {
	for _, n := range l.Nodes {
		g.steps++
		switch n := n.(type) {
		case *jsonpath.ListNode:
			g.steps-- // it has them
			g.list(n)
		case *jsonpath.RecursiveNode:
			g.descents++
		case *jsonpath.IdentifierNode:
			g.ranges = g.ranges || n.Name == "range"
		case *jsonpath.FilterNode:
			g.within(n.Left, n.Right)
		case *jsonpath.UnionNode:
			g.times = min(g.times*again(n), maxTimes+1)
			g.within(n.Nodes...)
		}
	}
}

func (g *growth) within(brackets ...*jsonpath.ListNode) {
	before := g.steps
	for _, l := range brackets {
		g.list(l)
	}
	g.inner += g.steps - before
}

// again is how often the entries of a list in brackets can come to one value: different names, and
// different indexes from the beginning, do not.
func again(u *jsonpath.UnionNode) int {
	same, others := 0, 0
	times := map[string]int{}
	for _, entry := range u.Nodes {
		name, ok := single(entry)
		if !ok {
			others++
			continue
		}
		times[name]++
		same = max(same, times[name])
	}
	return max(1, same+others)
}

// single tells what an entry is called that is a name or an index from the beginning.
func single(entry *jsonpath.ListNode) (string, bool) {
	if len(entry.Nodes) != 1 {
		return "", false
	}
	switch n := entry.Nodes[0].(type) {
	case *jsonpath.FieldNode:
		return "." + n.Value, true
	case *jsonpath.ArrayNode:
		first := n.Params[0]
		return strconv.Itoa(first.Value), first.Known && first.Value >= 0 && n.Params[1].Derived
	}
	return "", false
}
