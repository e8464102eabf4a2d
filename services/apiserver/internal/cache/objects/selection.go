package objects

import (
	"iter"
	"unique"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"binnacle/services/apiserver/internal/cache/attributes"
)

// Selection specifies which objects of a resource are selected. The zero value selects all.
type Selection struct {
	// Namespace and Name apply if they are not empty.
	Namespace, Name string
	// Labels and Fields apply if they are not nil. Fields may use metadata.name, metadata.namespace
	// and the fields of Attributes.
	Labels labels.Selector
	Fields fields.Selector
	// ExcludeCorrupt excludes corrupt objects: lists omit them, and watchers keep their last
	// readable version. Otherwise such objects are selected by namespace and name alone.
	ExcludeCorrupt bool
	// WithPrevious requests the previous version with each Modified event.
	WithPrevious bool
	// Pause, if set, is called after each PauseInterval objects, selected or not, so that the caller
	// can yield to other work. The iteration ends if Pause returns false.
	Pause func() bool
}

// PauseInterval is how many objects are inspected, or changes undone, between two calls of Pause:
// some tenths of a millisecond.
const PauseInterval = 1024

// keyPrefix returns the common prefix of the keys of all selected objects of a resource.
func (s *Selection) keyPrefix(resourcePrefix string) string {
	if s.Namespace == "" {
		return resourcePrefix
	}
	return resourcePrefix + s.Namespace + "/"
}

// Indexed returns the position in index of the first field for which the selection requires an exact
// value, and that value. The last result is false if there is no such field.
func (s *Selection) Indexed(index []string) (int, string, bool) {
	if s.Fields == nil {
		return 0, "", false
	}
	for i, field := range index {
		if v, ok := s.Fields.RequiresExactMatch(field); ok {
			return i, v, true
		}
	}
	return 0, "", false
}

// Matches reports whether an entry is selected.
func (s *Selection) Matches(e *Entry) bool {
	if e.corruption != nil {
		return s.Compile().Matches(e)
	}
	if s.Namespace != "" && e.Namespace() != s.Namespace || s.Name != "" && e.Name() != s.Name {
		return false
	}
	if s.Fields != nil && !s.Fields.Matches((*fieldView)(e)) {
		return false
	}
	return s.Labels == nil || s.Labels.Matches(e.Labels())
}

// Matcher is a Selection that is compiled for many entries. Lists match every object, and watches
// every change.
type Matcher struct {
	Selection
	labels attributes.Terms
	fields attributes.Terms
	// partialLabels and partialFields mean that the terms are incomplete and the selector itself
	// must match too.
	partialLabels, partialFields bool
}

// Compile normalizes the selection. It drops selectors that select everything. It copies exact
// values of metadata.name and metadata.namespace to Name and Namespace, which are cheaper to compare.
func (s Selection) Compile() *Matcher {
	matcher := &Matcher{Selection: s}
	if s.Labels != nil && s.Labels.Empty() {
		matcher.Labels = nil
	}
	if s.Fields != nil && s.Fields.Empty() {
		matcher.Fields = nil
	}
	if matcher.Labels != nil {
		matcher.labels, matcher.partialLabels = attributes.LabelTerms(matcher.Labels)
	}
	if matcher.Fields == nil {
		return matcher
	}
	matcher.fields, matcher.partialFields = attributes.FieldTerms(matcher.Fields)
	// The terms keep the copied values too. So a selector that contradicts Name or Namespace selects
	// nothing.
	if v, ok := matcher.Fields.RequiresExactMatch(attributes.FieldName); ok && v != "" && matcher.Name == "" {
		matcher.Name = v
	}
	if v, ok := matcher.Fields.RequiresExactMatch(attributes.FieldNamespace); ok && v != "" && matcher.Namespace == "" {
		matcher.Namespace = v
	}
	return matcher
}

// Matching compiles the selection and returns its Matches, for use with many entries.
func (s Selection) Matching() func(*Entry) bool { return s.Compile().Matches }

// Matches reports whether an entry is selected.
func (m *Matcher) Matches(e *Entry) bool {
	if !m.Named(e) {
		return false
	}
	if e.corruption != nil {
		return !m.ExcludeCorrupt
	}
	return (m.fields.Empty() || m.fields.MatchFields(e.Namespace(), e.Name(), e.Fields())) && m.labels.Match(e.Labels()) &&
		(!m.partialFields || m.Fields.Matches((*fieldView)(e))) && (!m.partialLabels || m.Labels.Matches(e.Labels()))
}

// Named reports whether an entry is selected by namespace and name.
func (m *Matcher) Named(e *Entry) bool {
	return (m.Namespace == "" || e.Namespace() == m.Namespace) && (m.Name == "" || e.Name() == m.Name)
}

// fieldView presents the fields of an entry, including name and namespace, to selectors.
type fieldView Entry

var _ fields.Fields = (*fieldView)(nil)

// Has implements fields.Fields.
func (v *fieldView) Has(field string) bool {
	return field == attributes.FieldName || field == attributes.FieldNamespace || v.Fields().Has(field)
}

// Get implements fields.Fields.
func (v *fieldView) Get(field string) string {
	switch field {
	case attributes.FieldName:
		return v.Name()
	case attributes.FieldNamespace:
		return v.Namespace()
	}
	return v.Fields().Get(field)
}

// FixedLabels iterates over the labels for which the selection requires an exact value, and these
// values.
func (m *Matcher) FixedLabels() iter.Seq2[unique.Handle[string], string] { return m.labels.Fixed() }
