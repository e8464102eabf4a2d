package flowcontrol

import (
	"slices"
	"strings"
)

// names are a list of a rule, made to be asked often: a long one is not gone through.
type names struct {
	all  bool     // whatever the list has beside it
	few  []string // or what is asked by its form: patterns of paths
	many map[string]struct{}
}

// few is how long a list may be that is gone through.
const few = 8

func namesOf(list []string) names {
	switch {
	case slices.Contains(list, "*"):
		return names{all: true}
	case len(list) <= few:
		return names{few: slices.Clone(list)}
	}
	n := names{many: make(map[string]struct{}, len(list))}
	for _, s := range list {
		n.many[s] = struct{}{}
		if strings.HasSuffix(s, "*") {
			n.few = append(n.few, s)
		}
	}
	return n
}

func (n *names) has(s string) bool {
	if n.all || slices.Contains(n.few, s) {
		return true
	}
	_, ok := n.many[s]
	return ok
}

// hasResource makes no string of the two in short lists.
func (n *names) hasResource(resource, sub string) bool {
	if sub == "" || n.all {
		return n.has(resource)
	}
	if n.many != nil {
		return n.has(resource + "/" + sub)
	}
	for _, s := range n.few {
		if rest, ok := strings.CutPrefix(s, resource); ok && strings.HasPrefix(rest, "/") && rest[1:] == sub {
			return true
		}
	}
	return false
}

// hasPath takes what ends with an asterisk for the beginning of paths.
func (n *names) hasPath(path string) bool {
	if n.has(path) {
		return true
	}
	for _, s := range n.few {
		if prefix, ok := strings.CutSuffix(s, "*"); ok && strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}
