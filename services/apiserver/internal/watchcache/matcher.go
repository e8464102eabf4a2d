package watchcache

import (
	"slices"
	"unique"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// matcher is a Selection made ready to look at many entries: keys are compared by identity,
// because sets share them.
type matcher struct {
	Selection
	labels []labelTerm
	fields []fieldTerm
	// The selector itself decides where terms do not say all.
	asLabels, asFields bool
}

// labelTerm is one requirement of a label selector.
type labelTerm struct {
	key     unique.Handle[string]
	values  []string // empty: any value
	negated bool
}

// fieldTerm is one requirement of a field selector.
type fieldTerm struct {
	field, value string
	key          unique.Handle[string]
	negated      bool
}

// matcher normalizes the selection: what the field selector fixes is moved to
// where it costs least, selectors that select everything are forgotten.
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

// labelTerms returns what the selector requires; true when the selector itself
// has to be asked too.
func labelTerms(s labels.Selector) (terms []labelTerm, ask bool) {
	reqs, selectable := s.Requirements()
	if !selectable || len(reqs) == 0 {
		return nil, true
	}
	for _, r := range reqs {
		t := labelTerm{key: unique.Make(r.Key())}
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
		case selection.NotEquals, selection.NotIn, selection.DoesNotExist:
			t.negated = true
		case selection.Exists:
		default:
			ask = true
			continue
		}
		t.values = r.ValuesUnsorted()
		terms = append(terms, t)
	}
	return terms, ask
}

func fieldTerms(s fields.Selector) (terms []fieldTerm, ask bool) {
	reqs := s.Requirements()
	if len(reqs) == 0 {
		return nil, true
	}
	for _, r := range reqs {
		t := fieldTerm{field: r.Field, value: r.Value, key: unique.Make(r.Field)}
		switch r.Operator {
		case selection.Equals, selection.DoubleEquals:
		case selection.NotEquals:
			t.negated = true
		default:
			ask = true
			continue
		}
		terms = append(terms, t)
	}
	return terms, ask
}

// matches tells whether an entry is selected.
func (m *matcher) matches(e *Entry) bool {
	if !m.named(e) {
		return false
	}
	if e.damage != nil {
		return !m.Readable
	}
	for i := range m.fields {
		if !m.fields[i].matches(e) {
			return false
		}
	}
	for i := range m.labels {
		if !m.labels[i].matches(&e.Labels) {
			return false
		}
	}
	return (!m.asFields || m.Fields.Matches((*fieldView)(e))) && (!m.asLabels || m.Labels.Matches(&e.Labels))
}

// named tells whether an entry is selected by namespace and name.
func (m *matcher) named(e *Entry) bool {
	return (m.Namespace == "" || e.Namespace == m.Namespace) && (m.Name == "" || e.Name == m.Name)
}

func (t *labelTerm) matches(s *Set) bool {
	if value, ok := s.of(t.key); ok {
		return (len(t.values) == 0 || slices.Contains(t.values, value)) != t.negated
	}
	return t.negated
}

// matches compares the field's value; one that is not there is empty.
func (t *fieldTerm) matches(e *Entry) bool {
	switch t.field {
	case FieldName:
		return (e.Name == t.value) != t.negated
	case FieldNamespace:
		return (e.Namespace == t.value) != t.negated
	}
	value, _ := e.Fields.of(t.key)
	return (value == t.value) != t.negated
}
