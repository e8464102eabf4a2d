package attributes

import (
	"iter"
	"math"
	"slices"
	"strconv"
	"unique"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// LabelTerms returns the requirements of the selector. partial means that the selector itself must
// match too.
func LabelTerms(s labels.Selector) (all Terms, partial bool) {
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

// FieldTerms is LabelTerms for fields. Absent fields are empty.
func FieldTerms(s fields.Selector) (all Terms, partial bool) {
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

// Terms holds the requirements of a selector.
type Terms struct {
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
func (a *Terms) term(name string) *term {
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
func (a *Terms) complete() {
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

// Match reports whether a set meets the requirements.
func (a *Terms) Match(s Set) bool {
	if a.byKey == nil {
		for i := range a.list {
			if value, ok := s.Value(a.list[i].key); !a.list[i].match(value, ok) {
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

// MatchFields is Match for the fields of an object. Selectors may use only few fields.
func (a *Terms) MatchFields(namespace, name string, set Set) bool {
	for i := range a.list {
		t := &a.list[i]
		var value string
		switch t.name {
		case FieldName:
			value = name
		case FieldNamespace:
			value = namespace
		default:
			value, _ = set.Value(t.key)
		}
		if !t.match(value, true) {
			return false
		}
	}
	return true
}

// Empty reports whether there are no requirements.
func (a *Terms) Empty() bool { return len(a.list) == 0 }

// Fixed iterates over the keys for which exactly one value is allowed, with that value.
func (a *Terms) Fixed() iter.Seq2[unique.Handle[string], string] {
	return func(yield func(unique.Handle[string], string) bool) {
		for i := range a.list {
			if value, ok := a.list[i].fixed(); ok && !yield(a.list[i].key, value) {
				return
			}
		}
	}
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
