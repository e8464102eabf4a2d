package watchcache

import (
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// matcher is a Selection prepared for many entries. Keys are compared by identity, because sets
// share them. All requirements on one key form one term (terms.go), however often the selector
// names the key, and many terms are found by the keys of an entry. So the cost of matching grows
// with the entry, not with the selector. Lists and watches match every object and every change.
type matcher struct {
	Selection
	labels termsOf
	fields termsOf
	// asLabels and asFields mean that the terms are incomplete and the selector itself must match
	// too.
	asLabels, asFields bool
}

// matcher normalizes the selection. It moves what the field selector fixes to where it is cheapest,
// and drops selectors that select everything.
func (s Selection) matcher() *matcher {
	m := &matcher{Selection: s}
	if s.Labels != nil && s.Labels.Empty() {
		m.Labels = nil
	}
	if s.Fields != nil && s.Fields.Empty() {
		m.Fields = nil
	}
	if m.Labels != nil {
		m.labels, m.asLabels = labelTerms(m.Labels)
	}
	if m.Fields == nil {
		return m
	}
	m.fields, m.asFields = fieldTerms(m.Fields)
	// The terms stay, so that a contradiction selects nothing.
	if v, ok := m.Fields.RequiresExactMatch(FieldName); ok && v != "" && m.Name == "" {
		m.Name = v
	}
	if v, ok := m.Fields.RequiresExactMatch(FieldNamespace); ok && v != "" && m.Namespace == "" {
		m.Namespace = v
	}
	return m
}

// labelTerms returns the requirements of the selector. It returns true if the selector itself must
// match too.
func labelTerms(s labels.Selector) (all termsOf, ask bool) {
	reqs, selectable := s.Requirements()
	if !selectable || len(reqs) == 0 {
		return all, true
	}
	for i := range reqs {
		t := all.term(reqs[i].Key())
		values := reqs[i].ValuesUnsorted()
		switch reqs[i].Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			t.within(values)
		case selection.NotEquals, selection.NotIn:
			t.without(values)
		case selection.Exists:
			t.needed = true
		case selection.DoesNotExist:
			t.refused = true
		case selection.GreaterThan:
			t.above(values)
		case selection.LessThan:
			t.below(values)
		default:
			ask = true
		}
	}
	all.settle()
	return all, ask
}

// fieldTerms is labelTerms for fields. Absent fields are empty.
func fieldTerms(s fields.Selector) (all termsOf, ask bool) {
	reqs := s.Requirements()
	if len(reqs) == 0 {
		return all, true
	}
	for _, r := range reqs {
		t := all.term(r.Field)
		switch r.Operator {
		case selection.Equals, selection.DoubleEquals:
			t.within([]string{r.Value})
		case selection.NotEquals:
			t.without([]string{r.Value})
		default:
			ask = true
		}
	}
	all.settle()
	return all, ask
}

// Matching returns Matches for use with many entries.
func (s Selection) Matching() func(*Entry) bool { return s.matcher().matches }

// matches reports whether an entry is selected.
func (m *matcher) matches(e *Entry) bool {
	if !m.named(e) {
		return false
	}
	if e.damage != nil {
		return !m.Readable
	}
	return m.fields.matchFields(e) && m.labels.match(e.Labels()) &&
		(!m.asFields || m.Fields.Matches((*fieldView)(e))) && (!m.asLabels || m.Labels.Matches(e.Labels()))
}

// named reports whether an entry is selected by namespace and name.
func (m *matcher) named(e *Entry) bool {
	return (m.Namespace == "" || e.Namespace() == m.Namespace) && (m.Name == "" || e.Name() == m.Name)
}
