package watchcache

import (
	"math"
	"slices"
	"strconv"
	"unique"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Selection specifies which objects of a resource are selected. The zero value selects all.
type Selection struct {
	// Namespace and Name apply if they are not empty.
	Namespace, Name string
	// Labels and Fields apply if they are not nil. Fields may use metadata.name, metadata.namespace
	// and the fields of Attributes.
	Labels labels.Selector
	Fields fields.Selector
	// Readable excludes unreadable objects: lists omit them, and watchers keep their last readable
	// version. Otherwise such objects are selected by namespace and name alone.
	Readable bool
	// Before requests the previous version with each Modified event.
	Before bool
	// Pause, if set, yields to other work. It is called after each pauseInterval objects, selected
	// or not. False ends the iteration.
	Pause func() bool
}

// pauseInterval is how many objects are inspected, or changes undone, between two calls of Pause:
// some tenths of a millisecond.
const pauseInterval = 1024

// indexed returns the position of an indexed field that the selection fixes, and the value.
func (s *Selection) indexed(index []string) (int, string, bool) {
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

// scope returns the narrowest scope that contains all selected objects.
func (s *Selection) scope(index []string) scope {
	switch {
	case s.Name != "" && s.Namespace != "":
		return scope{kind: scopeObject, a: s.Namespace, b: s.Name}
	case s.Name != "":
		return scope{kind: scopeName, a: s.Name}
	}
	if i, v, ok := s.indexed(index); ok {
		return scope{kind: scopeField, field: i, a: v}
	}
	if s.Namespace != "" {
		return scope{kind: scopeNamespace, a: s.Namespace}
	}
	return scope{}
}

// Matches reports whether an entry is selected.
func (s *Selection) Matches(e *Entry) bool {
	if e.damage != nil {
		return s.matcher().matches(e)
	}
	if s.Namespace != "" && e.Namespace() != s.Namespace || s.Name != "" && e.Name() != s.Name {
		return false
	}
	if s.Fields != nil && !s.Fields.Matches((*fieldView)(e)) {
		return false
	}
	return s.Labels == nil || s.Labels.Matches(e.Labels())
}

// matcher is a Selection prepared for many entries. Keys are compared by identity, because sets
// share them. All requirements on one key form one term, however often the selector
// names the key, and many terms are found by the keys of an entry. So the cost of matching grows
// with the entry, not with the selector. Lists and watches match every object and every change.
type matcher struct {
	Selection
	labels termsOf
	fields termsOf
	// partialLabels and partialFields mean that the terms are incomplete and the selector itself must match
	// too.
	partialLabels, partialFields bool
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
		m.labels, m.partialLabels = labelTerms(m.Labels)
	}
	if m.Fields == nil {
		return m
	}
	m.fields, m.partialFields = fieldTerms(m.Fields)
	// The terms stay, so that a contradiction selects nothing.
	if v, ok := m.Fields.RequiresExactMatch(FieldName); ok && v != "" && m.Name == "" {
		m.Name = v
	}
	if v, ok := m.Fields.RequiresExactMatch(FieldNamespace); ok && v != "" && m.Namespace == "" {
		m.Namespace = v
	}
	return m
}

// labelTerms returns the requirements of the selector. partial means that the selector itself must
// match too.
func labelTerms(s labels.Selector) (all termsOf, partial bool) {
	reqs, selectable := s.Requirements()
	if !selectable || len(reqs) == 0 {
		return all, true
	}
	for i := range reqs {
		t := all.term(reqs[i].Key())
		values := reqs[i].ValuesUnsorted()
		switch reqs[i].Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			t.requireIn(values)
		case selection.NotEquals, selection.NotIn:
			t.requireNotIn(values)
		case selection.Exists:
			t.needed = true
		case selection.DoesNotExist:
			t.refused = true
		case selection.GreaterThan:
			t.requireGreater(values)
		case selection.LessThan:
			t.requireLess(values)
		default:
			partial = true
		}
	}
	all.complete()
	return all, partial
}

// fieldTerms is labelTerms for fields. Absent fields are empty.
func fieldTerms(s fields.Selector) (all termsOf, partial bool) {
	reqs := s.Requirements()
	if len(reqs) == 0 {
		return all, true
	}
	for _, r := range reqs {
		t := all.term(r.Field)
		switch r.Operator {
		case selection.Equals, selection.DoubleEquals:
			t.requireIn([]string{r.Value})
		case selection.NotEquals:
			t.requireNotIn([]string{r.Value})
		default:
			partial = true
		}
	}
	all.complete()
	return all, partial
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
		(!m.partialFields || m.Fields.Matches((*fieldView)(e))) && (!m.partialLabels || m.Labels.Matches(e.Labels()))
}

// named reports whether an entry is selected by namespace and name.
func (m *matcher) named(e *Entry) bool {
	return (m.Namespace == "" || e.Namespace() == m.Namespace) && (m.Name == "" || e.Name() == m.Name)
}

// termsOf holds the requirements of a selector.
type termsOf struct {
	list []term
	// byKey indexes the terms if there are many.
	byKey  map[unique.Handle[string]]int
	needed int // number of terms that require their key to be present
}

// manyTerms is the number of terms from which on they are looked up by the keys of an entry. Fewer
// are iterated.
const manyTerms = 8

// term holds all requirements on one key.
type term struct {
	key  unique.Handle[string]
	name string
	// needed means that the key must be present; refused, that it must be absent.
	needed, refused bool
	// limited means that the value must be one of inside, which may be empty.
	limited          bool
	inside           values
	outside          values
	numeric          bool
	minimum, maximum int64 // of a number, inclusive
	neverANumber     bool
}

// values is sorted. A map would take several times the memory for each watch.
type values []string

// manyValues is the number of values from which on binary search is used.
const manyValues = 8

func (v values) has(s string) bool {
	if len(v) < manyValues {
		return slices.Contains(v, s)
	}
	_, ok := slices.BinarySearch(v, s)
	return ok
}

// term returns the term of a key. The pointer is valid until the next call.
func (a *termsOf) term(name string) *term {
	key := unique.Make(name)
	i, ok := a.byKey[key]
	if !ok {
		if a.byKey == nil {
			a.byKey = map[unique.Handle[string]]int{}
		}
		i = len(a.list)
		a.byKey[key] = i
		a.list = append(a.list, term{key: key, name: name, minimum: math.MinInt64, maximum: math.MaxInt64})
	}
	return &a.list[i]
}

// complete finishes the terms after the last requirement.
func (a *termsOf) complete() {
	for i := range a.list {
		t := &a.list[i]
		slices.Sort(t.inside)
		slices.Sort(t.outside)
		if t.needed {
			a.needed++
		}
	}
	if len(a.list) < manyTerms {
		a.byKey = nil
	}
}

// requireIn requires one of the values. The term owns values from now on.
func (t *term) requireIn(values []string) {
	t.needed = true
	if !t.limited {
		t.limited = true
		t.inside = values
		return
	}
	slices.Sort(values)
	t.inside = slices.DeleteFunc(t.inside, func(v string) bool {
		_, both := slices.BinarySearch(values, v)
		return !both
	})
}

func (t *term) requireNotIn(values []string) { t.outside = append(t.outside, values...) }

// requireGreater requires a number greater than the given one. As in apimachinery, no
// value matches if the given one is not a number.
func (t *term) requireGreater(values []string) {
	if n, ok := t.bound(values); ok && n < math.MaxInt64 {
		t.minimum = max(t.minimum, n+1)
	} else {
		t.neverANumber = true
	}
}

func (t *term) requireLess(values []string) {
	if n, ok := t.bound(values); ok && n > math.MinInt64 {
		t.maximum = min(t.maximum, n-1)
	} else {
		t.neverANumber = true
	}
}

func (t *term) bound(values []string) (int64, bool) {
	t.needed = true
	t.numeric = true
	if len(values) != 1 {
		return 0, false
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	return n, err == nil
}

// fixed returns the only value that a term allows, and whether there is exactly one.
func (t *term) fixed() (string, bool) {
	if !t.limited || len(t.inside) != 1 {
		return "", false
	}
	return t.inside[0], true
}

// match reports whether a set meets the requirements.
func (a *termsOf) match(s Set) bool {
	if a.byKey == nil {
		for i := range a.list {
			if value, ok := s.of(a.list[i].key); !a.list[i].match(value, ok) {
				return false
			}
		}
		return true
	}
	needed := a.needed
	if s.Len() < needed {
		return false
	}
	for position := range s.Len() {
		i, ok := a.byKey[s.keys.list[position]]
		if !ok {
			continue
		}
		t := &a.list[i]
		if !t.match(s.at(position), true) {
			return false
		}
		if t.needed {
			needed--
		}
	}
	return needed == 0
}

// matchFields is match for the fields of an entry. Selectors may use only few fields.
func (a *termsOf) matchFields(e *Entry) bool {
	for i := range a.list {
		t := &a.list[i]
		var value string
		switch t.name {
		case FieldName:
			value = e.Name()
		case FieldNamespace:
			value = e.Namespace()
		default:
			value, _ = e.Fields().of(t.key)
		}
		if !t.match(value, true) {
			return false
		}
	}
	return true
}

// match reports whether a present value, or its absence, meets the requirements.
func (t *term) match(value string, there bool) bool {
	if !there {
		return !t.needed
	}
	if t.refused || t.limited && !t.inside.has(value) || len(t.outside) > 0 && t.outside.has(value) {
		return false
	}
	if !t.numeric {
		return true
	}
	n, err := strconv.ParseInt(value, 10, 64)
	return err == nil && !t.neverANumber && t.minimum <= n && n <= t.maximum
}
