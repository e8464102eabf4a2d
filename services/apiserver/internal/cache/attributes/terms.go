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

// Terms is a selector that is compiled for many sets. All requirements on one key form one term,
// however often the selector names the key. Keys are compared by identity, because sets share them.
// Many terms are looked up by the keys of a set, so the cost of matching grows with the set and not
// with the selector. Terms are immutable once they are returned.
type Terms struct {
	list []term
	// byKey holds the positions of the terms in list. It is nil if there are fewer than manyTerms.
	byKey    map[unique.Handle[string]]int
	required int // number of terms that require their key to be present
}

// manyTerms is the number of terms from which on they are looked up by the keys of a set. Fewer
// terms are tried one after the other.
const manyTerms = 8

// term holds all requirements on one key.
type term struct {
	key  unique.Handle[string]
	name string // the text of key
	// required means that the key must be present; forbidden, that it must be absent.
	required, forbidden bool
	// limited means that the value must be one of allowed, which may be empty.
	limited  bool
	allowed  values
	excluded values
	// numeric means that the value must be a number from minimum to maximum.
	numeric          bool
	minimum, maximum int64
	// impossible means that no value matches.
	impossible bool
}

// values holds sorted values. A map would take several times the memory for each watch.
type values []string

// manyValues is the number of values from which on binary search is used.
const manyValues = 8

// contains reports whether a value is in the list.
func (v values) contains(s string) bool {
	if len(v) < manyValues {
		return slices.Contains(v, s)
	}
	_, ok := slices.BinarySearch(v, s)
	return ok
}

// LabelTerms compiles a selector of labels. partial means that the terms do not express the whole
// selector, so that the selector itself must match, too.
func LabelTerms(selector labels.Selector) (terms Terms, partial bool) {
	requirements, selectable := selector.Requirements()
	if !selectable || len(requirements) == 0 {
		return terms, true
	}
	for i := range requirements {
		parsed := terms.termOf(requirements[i].Key())
		values := requirements[i].ValuesUnsorted()
		switch requirements[i].Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			parsed.requireIn(values)
		case selection.NotEquals, selection.NotIn:
			parsed.requireNotIn(values)
		case selection.Exists:
			parsed.required = true
		case selection.DoesNotExist:
			parsed.forbidden = true
		case selection.GreaterThan:
			parsed.requireGreater(values)
		case selection.LessThan:
			parsed.requireLess(values)
		default:
			partial = true
		}
	}
	terms.finish()
	return terms, partial
}

// FieldTerms is LabelTerms for a selector of fields.
func FieldTerms(selector fields.Selector) (terms Terms, partial bool) {
	requirements := selector.Requirements()
	if len(requirements) == 0 {
		return terms, true
	}
	for _, r := range requirements {
		t := terms.termOf(r.Field)
		switch r.Operator {
		case selection.Equals, selection.DoubleEquals:
			t.requireIn([]string{r.Value})
		case selection.NotEquals:
			t.requireNotIn([]string{r.Value})
		default:
			partial = true
		}
	}
	terms.finish()
	return terms, partial
}

// termOf returns the term of a key, which it adds if it is new. The pointer is valid until the next
// call.
func (a *Terms) termOf(name string) *term {
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

// finish sorts the values of the terms after the last requirement is added.
func (a *Terms) finish() {
	for i := range a.list {
		t := &a.list[i]
		slices.Sort(t.allowed)
		slices.Sort(t.excluded)
		if t.required {
			a.required++
		}
	}
	if len(a.list) < manyTerms {
		a.byKey = nil
	}
}

// requireIn requires one of the values. The term owns values from now on.
func (t *term) requireIn(values []string) {
	t.required = true
	if !t.limited {
		t.limited = true
		t.allowed = values
		return
	}
	slices.Sort(values)
	t.allowed = slices.DeleteFunc(t.allowed, func(v string) bool {
		_, inBoth := slices.BinarySearch(values, v)
		return !inBoth
	})
}

// requireNotIn excludes values. The key may be absent.
func (t *term) requireNotIn(values []string) { t.excluded = append(t.excluded, values...) }

// requireGreater requires a number greater than the only one of values. As in apimachinery, no
// value matches if that is not a number.
func (t *term) requireGreater(values []string) {
	if n, ok := t.requireNumber(values); ok && n < math.MaxInt64 {
		t.minimum = max(t.minimum, n+1)
	} else {
		t.impossible = true
	}
}

// requireLess is requireGreater for smaller numbers.
func (t *term) requireLess(values []string) {
	if n, ok := t.requireNumber(values); ok && n > math.MinInt64 {
		t.maximum = min(t.maximum, n-1)
	} else {
		t.impossible = true
	}
}

// requireNumber requires a number. It returns the bound in values, and false if there is not
// exactly one.
func (t *term) requireNumber(values []string) (int64, bool) {
	t.required = true
	t.numeric = true
	if len(values) != 1 {
		return 0, false
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	return n, err == nil
}

// singleValue returns the only value that a term allows, and whether there is exactly one.
func (t *term) singleValue() (string, bool) {
	if !t.limited || len(t.allowed) != 1 {
		return "", false
	}
	return t.allowed[0], true
}

// Match reports whether a set meets the requirements.
func (a *Terms) Match(set Set) bool {
	if a.byKey == nil {
		for i := range a.list {
			if value, ok := set.Value(a.list[i].key); !a.list[i].match(value, ok) {
				return false
			}
		}
		return true
	}
	required := a.required
	if set.Len() < required {
		return false
	}
	for position := range set.Len() {
		i, ok := a.byKey[set.keys.list[position]]
		if !ok {
			continue
		}
		t := &a.list[i]
		if !t.match(set.valueAt(position), true) {
			return false
		}
		if t.required {
			required--
		}
	}
	return required == 0
}

// MatchFields reports whether an object meets the requirements of a field selector. set holds its
// fields except metadata.namespace and metadata.name. Absent fields are
// empty.
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
			if value, ok := a.list[i].singleValue(); ok && !yield(a.list[i].key, value) {
				return
			}
		}
	}
}

// match reports whether the value of a key, or its absence, meets the requirements.
func (t *term) match(value string, present bool) bool {
	if !present {
		return !t.required
	}
	if t.forbidden || t.limited && !t.allowed.contains(value) || len(t.excluded) > 0 && t.excluded.contains(value) {
		return false
	}
	if !t.numeric {
		return true
	}
	n, err := strconv.ParseInt(value, 10, 64)
	return err == nil && !t.impossible && t.minimum <= n && n <= t.maximum
}
