package schema

import (
	"binnacle/services/apiserver/internal/json/jsontext"
	"binnacle/services/apiserver/internal/json/tape"
)

// operations is the set of operations of a normalizer.
type operations uint8

const (
	pruneUnknown operations = 1 << iota
	addDefaults
	removeNulls   // that are not allowed
	cleanMetadata // of embedded resources
	allOperations = pruneUnknown | addDefaults | removeNulls | cleanMetadata
)

// memberAction is what happens to a member of an object.
type memberAction uint8

const (
	keepMember memberAction = iota
	removeMember
	replaceByDefault // the default replaces a null
)

// normalizeObject normalizes the members of an object, and adds defaults for missing ones.
func (s *normalizer) normalizeObject(at NodeIndex, value tape.Ref, objectMode mode, resource bool) {
	schemaNode := &s.program.nodes[at]
	doc := s.doc
	if objectMode == prune && schemaNode.preservesUnknown {
		objectMode = preserve
	}
	var seen indexSet // properties that the object has
	addsDefaults := schemaNode.hasDefaults && s.operations&addDefaults != 0
	if addsDefaults {
		seen = newIndexSet(len(schemaNode.props))
	}

	// 1. Remove, replace or normalize each member.
	start, end := doc.Span(value)
	last := start + 1      // end of the last member, or start of the content
	retained, next := 0, 0 // number of members that stay; index after the last found property
	for key, stop := doc.First(value), doc.Next(value); key < stop && s.err == nil; key = doc.Next(key + 1) {
		i := schemaNode.find(doc, key, next)
		sub := schemaNode.values
		isNamed := i >= 0
		if isNamed {
			next = i + 1
			sub = schemaNode.props[i].node
			seen.set(i)
		}
		valueStart, valueEnd := doc.Span(key + 1)
		meta := (resource || schemaNode.isEmbedded) && isMeta(doc, key)
		if meta && resource { // the resource's own metadata stays as it is
			retained++
			last = valueEnd
			continue
		}
		switch s.memberAction(schemaNode, sub, isNamed, meta, key, objectMode) {
		case removeMember:
			s.removeMember(key, last, retained, end)
		case replaceByDefault:
			s.replace(valueStart, valueEnd, s.program.nodes[sub].defaultValue)
			retained++
		case keepMember:
			retained++
			s.normalizeMember(schemaNode, sub, isNamed, meta, key, objectMode)
		}
		last = valueEnd
	}

	// 2. Add the defaults of missing members.
	if addsDefaults {
		s.appendDefaults(schemaNode, &seen, last, end-1, retained)
	}
}

// memberAction returns what happens to a member. sub is the node of its schema. named states
// whether the schema of the object names the property, meta whether it is metadata, apiVersion or
// kind of a resource.
func (s *normalizer) memberAction(n *node, sub NodeIndex, named, meta bool, key tape.Ref, m mode) memberAction {
	if m == prune && !named && !meta && n.additional == additionalUnspecified {
		s.reportUnknown(key, stepValue)
		return removeMember
	}
	if sub != NoNode && s.doc.Kind(key+1) == tape.Null {
		child := &s.program.nodes[sub]
		switch {
		case child.nullable:
		case child.defaultValue != nil && meta && s.emptiesNullMetadata(key):
		case child.defaultValue != nil && s.operations&addDefaults != 0:
			return replaceByDefault
		case child.defaultValue == nil && s.operations&removeNulls != 0:
			return removeMember
		}
	}
	if meta && s.operations&cleanMetadata != 0 && s.mustRemoveType(key) {
		return removeMember
	}
	return keepMember
}

// removeMember removes a member and one comma: the comma before it if an earlier member is kept,
// else the comma after it. last is the end of the last member before it, end that of the object.
func (s *normalizer) removeMember(key tape.Ref, last, retained, end int) {
	keyStart, _ := s.doc.Span(key)
	_, valueEnd := s.doc.Span(key + 1)
	if retained > 0 {
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

// normalizeMember normalizes the value of a member that stays.
func (s *normalizer) normalizeMember(schemaNode *node, sub NodeIndex, named, meta bool, key tape.Ref, memberMode mode) {
	kind := stepValue
	if named {
		kind = stepProp
	}
	s.steps = append(s.steps, step{kind: kind, key: key})
	switch {
	case meta && s.operations&cleanMetadata != 0:
		s.cleanEmbeddedMetadata(sub, key)
	case meta:
	case !named && schemaNode.additional == additionalUnspecified:
		// No schema describes the value. It is kept unchanged.
	case memberMode == keep:
		s.normalizeValue(sub, key+1, keep)
	default:
		s.normalizeValue(sub, key+1, prune)
	}
	s.steps = s.steps[:len(s.steps)-1]
}

// appendDefaults appends the defaults of missing properties. last is the end of the last member,
// brace the offset of the closing brace, and retained the number of members that stay.
func (s *normalizer) appendDefaults(schemaNode *node, seen *indexSet, last, brace, retained int) {
	for _, i := range schemaNode.defaultedProps {
		if seen.has(int(i)) {
			continue
		}
		defaultValue := s.program.nodes[schemaNode.props[i].node].defaultValue
		at := brace
		if retained > 0 {
			at = max(last, s.copied)
		}
		var comma []byte
		if retained > 0 {
			comma = []byte{','}
		}
		retained++
		s.replace(at, at, comma, jsontext.AppendString(nil, schemaNode.props[i].name), []byte{':'}, defaultValue)
		last = at
	}
}

// indexSet is a set of small numbers.
type indexSet struct {
	few  uint64   // bits of numbers below 64, if many is nil
	many []uint64 // bits of more numbers
}

// newIndexSet returns an empty set for numbers below n.
func newIndexSet(n int) indexSet {
	if n <= 64 {
		return indexSet{}
	}
	return indexSet{many: make([]uint64, (n+63)/64)}
}

func (m *indexSet) set(i int) {
	if m.many != nil {
		m.many[i/64] |= 1 << (i % 64)
	} else if i < 64 {
		m.few |= 1 << i
	}
}

func (m *indexSet) has(i int) bool {
	if m.many != nil {
		return m.many[i/64]&(1<<(i%64)) != 0
	}
	return i < 64 && m.few&(1<<i) != 0
}
