package flowcontrol

import (
	"slices"
	"strings"
)

// nameSet is a list of a rule with fast membership tests. A long list is a map.
type nameSet struct {
	all    bool     // the list contains "*"
	linear []string // a short list, or the path patterns of a long one
	set    map[string]struct{}
}

// maxLinear is the maximum length of a list that is searched linearly.
const maxLinear = 8

func newNameSet(list []string) nameSet {
	switch {
	case slices.Contains(list, "*"):
		return nameSet{all: true}
	case len(list) <= maxLinear:
		return nameSet{linear: slices.Clone(list)}
	}
	n := nameSet{set: make(map[string]struct{}, len(list))}
	for _, s := range list {
		n.set[s] = struct{}{}
		if strings.HasSuffix(s, "*") {
			n.linear = append(n.linear, s)
		}
	}
	return n
}

func (n *nameSet) has(s string) bool {
	if n.all || slices.Contains(n.linear, s) {
		return true
	}
	_, ok := n.set[s]
	return ok
}

// hasResource reports whether the set has a resource or subresource. It does not allocate for short lists.
func (n *nameSet) hasResource(resource, sub string) bool {
	if sub == "" || n.all {
		return n.has(resource)
	}
	if n.set != nil {
		return n.has(resource + "/" + sub)
	}
	for _, s := range n.linear {
		if rest, ok := strings.CutPrefix(s, resource); ok && strings.HasPrefix(rest, "/") && rest[1:] == sub {
			return true
		}
	}
	return false
}

// hasPath reports whether the set has a path. A name that ends with an asterisk matches by prefix.
func (n *nameSet) hasPath(path string) bool {
	if n.has(path) {
		return true
	}
	for _, s := range n.linear {
		if prefix, ok := strings.CutSuffix(s, "*"); ok && strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}
