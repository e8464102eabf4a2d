package watchcache

import (
	"math"
	"slices"
	"strconv"
	"unique"
)

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
	limited      bool
	inside       values
	outside      values
	numeric      bool
	least, most  int64 // of a number, inclusive
	neverANumber bool
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
		a.list = append(a.list, term{key: key, name: name, least: math.MinInt64, most: math.MaxInt64})
	}
	return &a.list[i]
}

// settle completes the terms.
func (a *termsOf) settle() {
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

// within requires one of the values. The term owns values from now on.
func (t *term) within(values []string) {
	t.needed = true
	if !t.limited {
		t.limited, t.inside = true, values
		return
	}
	slices.Sort(values)
	t.inside = slices.DeleteFunc(t.inside, func(v string) bool {
		_, both := slices.BinarySearch(values, v)
		return !both
	})
}

func (t *term) without(values []string) { t.outside = append(t.outside, values...) }

// above requires a number greater than the given one. As in apimachinery, no value matches if the
// given one is not a number.
func (t *term) above(values []string) {
	if n, ok := t.bound(values); ok && n < math.MaxInt64 {
		t.least = max(t.least, n+1)
	} else {
		t.neverANumber = true
	}
}

func (t *term) below(values []string) {
	if n, ok := t.bound(values); ok && n > math.MinInt64 {
		t.most = min(t.most, n-1)
	} else {
		t.neverANumber = true
	}
}

func (t *term) bound(values []string) (int64, bool) {
	t.needed, t.numeric = true, true
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
	for place := range s.Len() {
		i, ok := a.byKey[s.keys.list[place]]
		if !ok {
			continue
		}
		t := &a.list[i]
		if !t.match(s.at(place), true) {
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
	return err == nil && !t.neverANumber && t.least <= n && n <= t.most
}
