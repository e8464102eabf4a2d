package watchcache

import (
	"iter"
	"slices"
	"strings"
	"sync"
	"unique"
	"unsafe"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// Attributes are what selectors look at.
type Attributes struct {
	Namespace, Name string
	Labels          Set
	// Fields leaves metadata.name and metadata.namespace out; every entry has
	// them.
	Fields Set
}

// Pair is a label or a field with its value.
type Pair struct{ Key, Value string }

// Set is a compact immutable map. Keys are shared between all sets that hold them, values between
// those that were made one after the other. It implements labels.Labels and fields.Fields.
type Set struct{ pairs []sharedPair }

type sharedPair struct {
	key   unique.Handle[string]
	value string
}

var (
	_ labels.Labels = (*Set)(nil)
	_ fields.Fields = (*Set)(nil)
)

// Recent remembers strings that sets were made of lately. Objects of one resource have
// all of their fields' names, most of their labels' and many values in common, which are
// then found without looking among all strings that any set holds. It is safe for
// concurrent use; its zero value is empty, and nil remembers nothing.
type Recent struct{ tables sync.Pool }

// recentTable has those that one goroutine remembers.
type recentTable struct {
	keys   [recentStrings]unique.Handle[string]
	values [recentStrings]string
}

// recentStrings is a power of two.
const recentStrings = 256

// table is for the caller alone, until it is put back.
func (r *Recent) table() *recentTable {
	if r == nil {
		return nil
	}
	if t, ok := r.tables.Get().(*recentTable); ok {
		return t
	}
	return new(recentTable)
}

func (r *Recent) put(t *recentTable) {
	if r != nil {
		r.tables.Put(t)
	}
}

// key returns what is shared of a key.
func (t *recentTable) key(k string) unique.Handle[string] {
	if t == nil {
		return unique.Make(k)
	}
	place := &t.keys[recentPlace(k)]
	if *place != (unique.Handle[string]{}) && place.Value() == k {
		return *place
	}
	*place = unique.Make(k)
	return *place
}

// value returns a copy of a value. It is not looked for among those of all sets, as many have it
// for themselves.
func (t *recentTable) value(v string) string {
	if t == nil {
		return strings.Clone(v)
	}
	place := &t.values[recentPlace(v)]
	if *place != v {
		*place = strings.Clone(v)
	}
	return *place
}

// recentPlace is where a string is remembered, by its length and ends: keys have their
// beginnings in common, values their beginnings or ends.
func recentPlace(v string) int {
	h := uint32(len(v))
	for i := max(0, len(v)-4); i < len(v); i++ {
		h = h*31 + uint32(v[i])
	}
	for i := range min(4, len(v)) {
		h = h*31 + uint32(v[i])
	}
	return int((h ^ h>>7 ^ h>>15) % recentStrings)
}

// MakeSet makes a set of pairs, of which the last with a key wins.
func MakeSet[P ~struct{ Key, Value string }](pairs []P) Set { return MakeSetLike(nil, pairs) }

// MakeFieldsLike is MakeSetLike without what is empty: a field that is not there is.
func MakeFieldsLike[P ~struct{ Key, Value string }](recent *Recent, pairs []P) Set {
	return makeSet(recent, pairs, func(p Pair) bool { return p.Value != "" })
}

// MakeSetLike is MakeSet for one of many sets that have much in common.
func MakeSetLike[P ~struct{ Key, Value string }](recent *Recent, pairs []P) Set {
	return makeSet(recent, pairs, func(Pair) bool { return true })
}

func makeSet[P ~struct{ Key, Value string }](recent *Recent, pairs []P, wanted func(Pair) bool) Set {
	n := 0
	for _, p := range pairs {
		if wanted(Pair(p)) {
			n++
		}
	}
	if n == 0 {
		return Set{}
	}
	table := recent.table()
	defer recent.put(table)
	s := Set{pairs: make([]sharedPair, 0, n)}
	for _, p := range pairs {
		pair := Pair(p)
		if !wanted(pair) {
			continue
		}
		i, found := s.search(pair.Key)
		if found {
			s.pairs[i].value = table.value(pair.Value)
			continue
		}
		s.pairs = slices.Insert(s.pairs, i, sharedPair{table.key(pair.Key), table.value(pair.Value)})
	}
	return s
}

// SetOf makes a set of a map.
func SetOf(m map[string]string) Set {
	pairs := make([]Pair, 0, len(m))
	for k, v := range m {
		pairs = append(pairs, Pair{k, v})
	}
	return MakeSet(pairs)
}

func (s *Set) search(key string) (int, bool) {
	return slices.BinarySearchFunc(s.pairs, key, func(p sharedPair, key string) int {
		return strings.Compare(p.key.Value(), key)
	})
}

// Lookup returns the value of a key and whether it is there.
func (s *Set) Lookup(key string) (string, bool) {
	for i := range s.pairs {
		if s.pairs[i].key.Value() == key {
			return s.pairs[i].value, true
		}
	}
	return "", false
}

// Has tells whether a key is there.
func (s *Set) Has(key string) bool {
	_, ok := s.Lookup(key)
	return ok
}

// Get returns the value of a key, "" when it is not there.
func (s *Set) Get(key string) string {
	v, _ := s.Lookup(key)
	return v
}

// equal tells whether two sets hold the same.
func (s *Set) equal(o *Set) bool { return slices.Equal(s.pairs, o.pairs) }

// shares tells whether two sets are one in memory.
func (s *Set) shares(o *Set) bool {
	return len(s.pairs) == len(o.pairs) && (len(s.pairs) == 0 || &s.pairs[0] == &o.pairs[0])
}

// size is the memory that the set takes.
func (s *Set) size() int64 {
	n := int64(cap(s.pairs)) * int64(unsafe.Sizeof(sharedPair{}))
	for i := range s.pairs {
		n += int64(len(s.pairs[i].value))
	}
	return n
}

// Len is the number of keys.
func (s *Set) Len() int { return len(s.pairs) }

// All goes through the pairs in the order of their keys.
func (s *Set) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, p := range s.pairs {
			if !yield(p.key.Value(), p.value) {
				return
			}
		}
	}
}

// The fields that every entry has.
const (
	FieldName      = "metadata.name"
	FieldNamespace = "metadata.namespace"
)

// fieldView shows an entry's fields, name and namespace included, to selectors.
type fieldView Entry

var _ fields.Fields = (*fieldView)(nil)

func (v *fieldView) Has(field string) bool {
	return field == FieldName || field == FieldNamespace || v.Fields.Has(field)
}

func (v *fieldView) Get(field string) string {
	switch field {
	case FieldName:
		return v.Name
	case FieldNamespace:
		return v.Namespace
	}
	return v.Fields.Get(field)
}
