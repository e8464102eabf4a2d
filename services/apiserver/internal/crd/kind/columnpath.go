package kind

import (
	"strconv"

	"k8s.io/client-go/util/jsonpath"
)

// Bounds of a column's path. An evaluation collects all matches, although only the first is shown.
const (
	// maxPath is the maximum length in bytes. The parser recurses for each step.
	maxPath = 16 << 10
	// maxSteps is the maximum number of steps. Objects are not deeper, so more steps match nothing.
	maxSteps = 500
	// maxBracketSteps is the maximum number of steps in brackets. They are evaluated for each value
	// that the preceding steps match.
	maxBracketSteps = 64
	// maxMatches is how often a path may match one value.
	maxMatches = 8
)

// parsePath parses the path of a column. It returns false if the path is invalid or if its matches
// are not bounded by the size of the object. Names, indexes, filters and wildcards match a value
// once, and so does a single descent.
func parsePath(path string) (*jsonpath.ListNode, bool) {
	if len(path) > maxPath {
		return nil, false
	}
	parsed, err := jsonpath.Parse("", "{"+path+"}")
	if err != nil { // definitions may contain an invalid path
		return nil, false
	}
	c := pathCost{matches: max(1, len(parsed.Root.Nodes))} // }{ starts another path
	c.addNodes(parsed.Root)
	return parsed.Root, c.isBounded()
}

// pathCost counts the elements of a path that multiply the values it matches or the work to match
// them.
type pathCost struct {
	steps        int
	bracketSteps int  // steps in brackets
	descents     int  // recursive descents (..)
	matches      int  // how often the path may match one value, because of lists in brackets
	ranges       bool // a range restarts the rest of the path for each value and changes the parsed path
}

// isBounded reports whether the counts are within the bounds.
func (c *pathCost) isBounded() bool {
	return c.steps <= maxSteps && c.bracketSteps <= maxBracketSteps &&
		c.descents <= 1 && c.matches <= maxMatches && !c.ranges
}

// addNodes counts the nodes of a list.
func (c *pathCost) addNodes(l *jsonpath.ListNode) {
	for _, n := range l.Nodes {
		c.steps++
		switch n := n.(type) {
		case *jsonpath.ListNode:
			c.steps-- // its nodes are counted instead
			c.addNodes(n)
		case *jsonpath.RecursiveNode:
			c.descents++
		case *jsonpath.IdentifierNode:
			c.ranges = c.ranges || n.Name == "range"
		case *jsonpath.FilterNode:
			c.addBrackets(n.Left, n.Right)
		case *jsonpath.UnionNode:
			c.matches = min(c.matches*matchesPerValue(n), maxMatches+1)
			c.addBrackets(n.Nodes...)
		}
	}
}

// addBrackets counts the steps in brackets.
func (c *pathCost) addBrackets(brackets ...*jsonpath.ListNode) {
	before := c.steps
	for _, l := range brackets {
		c.addNodes(l)
	}
	c.bracketSteps += c.steps - before
}

// matchesPerValue returns how often the entries of a list in brackets may match one value.
// Different names, and different indexes from the start, match different values.
func matchesPerValue(u *jsonpath.UnionNode) int {
	maxEqual, withoutKey := 0, 0 // entries with the most frequent key, and entries without a key
	timesByKey := map[string]int{}
	for _, entry := range u.Nodes {
		key, ok := entryKey(entry)
		if !ok {
			withoutKey++
			continue
		}
		timesByKey[key]++
		maxEqual = max(maxEqual, timesByKey[key])
	}
	return max(1, maxEqual+withoutKey)
}

// entryKey returns the identity of an entry that is a name or an index from the start.
func entryKey(entry *jsonpath.ListNode) (string, bool) {
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
