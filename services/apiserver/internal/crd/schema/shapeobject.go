package schema

import (
	"binnacle/services/apiserver/internal/json/jsontext"
	"binnacle/services/apiserver/internal/json/tape"
)

// parts is the set of operations of a shaper.
type parts uint8

const (
	prunes     parts = 1 << iota
	fills            // adds defaults
	nulls            // removes unwanted nulls
	cleans           // cleans embedded metadata
	everything = prunes | fills | nulls | cleans
)

// member is the fate of an object's member.
type member uint8

const (
	stays member = iota
	goes
	isFilled // the default replaces a null
)

// object shapes the members of an object, and adds defaults for missing ones.
func (s *shaper) object(at NodeIndex, v tape.Ref, m mode, resource bool) {
	n := &s.program.nodes[at]
	d := s.doc
	if m == prune && n.preserve {
		m = preserve
	}
	var seen indexSet
	filling := n.hasDefaults && s.parts&fills != 0
	if filling {
		seen = newIndexSet(len(n.props))
	}
	start, end := d.Span(v)
	last := start + 1 // end of the last member, or start of the content
	kept, next := 0, 0
	for k, stop := d.First(v), d.Next(v); k < stop && s.err == nil; k = d.Next(k + 1) {
		i := n.find(d, k, next)
		sub := n.values
		if i >= 0 {
			next = i + 1
			sub = n.props[i].node
			seen.set(i)
		}
		valueStart, valueEnd := d.Span(k + 1)
		meta := (resource || n.embedded) && isMeta(d, k)
		if meta && resource {
			kept++
			last = valueEnd
			continue
		}
		switch s.decide(n, sub, i >= 0, meta, k, m) {
		case goes:
			s.drop(k, last, kept, end)
		case isFilled:
			s.replace(valueStart, valueEnd, s.program.nodes[sub].defaultValue)
			kept++
		case stays:
			kept++
			s.member(n, sub, i >= 0, meta, k, m)
		}
		last = valueEnd
	}
	if filling {
		s.fill(n, &seen, last, end-1, kept)
	}
}

// decide decides on a member. sub is the place of its schema. named states whether the schema names
// the property.
func (s *shaper) decide(n *node, sub NodeIndex, named, meta bool, key tape.Ref, m mode) member {
	if m == prune && !named && !meta && n.additional == unspecified {
		s.report(key, stepValue)
		return goes
	}
	if sub != noNode && s.doc.Kind(key+1) == tape.Null {
		child := &s.program.nodes[sub]
		switch {
		case child.nullable:
		case child.defaultValue != nil && s.parts&fills != 0:
			return isFilled
		case child.defaultValue == nil && s.parts&nulls != 0:
			return goes
		}
	}
	if meta && s.parts&cleans != 0 && s.badType(key) {
		return goes
	}
	return stays
}

// drop removes a member and a comma: the one before it if an earlier member is kept, else the one
// after it.
func (s *shaper) drop(key tape.Ref, last, kept, end int) {
	keyStart, _ := s.doc.Span(key)
	_, valueEnd := s.doc.Span(key + 1)
	if kept > 0 {
		s.replace(max(last, s.copied), valueEnd)
		return
	}
	next := s.doc.Next(key + 1)
	stop := end - 1
	if int(next) < s.doc.Entries() {
		if start, _ := s.doc.Span(next); start < stop {
			stop = start
		}
	}
	s.replace(max(keyStart, s.copied), stop)
}

// member shapes the value of a member that stays.
func (s *shaper) member(n *node, sub NodeIndex, named, meta bool, key tape.Ref, m mode) {
	kind := stepValue
	if named {
		kind = stepProp
	}
	s.steps = append(s.steps, step{kind: kind, key: key})
	switch {
	case meta && s.parts&cleans != 0:
		s.embeddedMeta(sub, key)
	case meta:
	case !named && n.additional == unspecified:
		// No schema describes it, and it stays unchanged.
	case m == keep:
		s.value(sub, key+1, keep)
	default:
		s.value(sub, key+1, prune)
	}
	s.steps = s.steps[:len(s.steps)-1]
}

// fill appends the defaults of missing properties.
func (s *shaper) fill(n *node, seen *indexSet, last, brace, kept int) {
	for _, i := range n.filled {
		if seen.has(int(i)) {
			continue
		}
		fallback := s.program.nodes[n.props[i].node].defaultValue
		at := brace
		if kept > 0 && last > s.copied {
			at = last
		} else if kept > 0 && s.copied >= last {
			at = s.copied
		}
		var comma []byte
		if kept > 0 {
			comma = []byte{','}
		}
		kept++
		s.replace(at, at, comma, jsontext.AppendString(nil, n.props[i].name), []byte{':'}, fallback)
		last = at
	}
}
