package watchcache

import (
	"encoding/binary"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"
	"unique"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// Attributes holds what selectors match on.
type Attributes struct {
	Namespace, Name string
	Labels          Set
	// Fields excludes metadata.name and metadata.namespace, which every entry has.
	Fields Set
}

// Pair is a label or a field with its value.
type Pair struct{ Key, Value string }

// Set is a compact immutable map. Sets with equal keys share one list of keys. The values are in
// one text, which consecutive equal sets share. Set implements labels.Labels and fields.Fields.
type Set struct {
	keys *setKeys
	text string // the end of each value in the order of the keys, then the values
}

// setKeys holds keys in ascending order.
type setKeys struct{ list []unique.Handle[string] }

var (
	_ labels.Labels = Set{}
	_ fields.Fields = Set{}
)

// Recent caches the parts that recent sets were built from. Objects of one resource share all field
// names, most label keys and many values. The cache finds these without a lookup in the
// process-wide table of unique strings. It is safe for concurrent use. The zero value is empty, and
// a nil Recent caches nothing.
type Recent struct{ tables sync.Pool }

// recentTable is the cache of one goroutine, with scratch space to build a set.
type recentTable struct {
	keys  [recentStrings]unique.Handle[string]
	lists [recentLists]*setKeys
	texts [recentStrings]string

	pairs []setPair
	list  []unique.Handle[string]
	text  []byte
}

// setPair is a Pair with an interned key.
type setPair struct {
	key   unique.Handle[string]
	value string
}

// recentStrings and recentLists are powers of two.
const recentStrings, recentLists = 256, 64

// table returns a table that the caller owns until it calls put.
func (r *Recent) table() *recentTable {
	if r == nil {
		return new(recentTable)
	}
	if t, ok := r.tables.Get().(*recentTable); ok {
		return t
	}
	return new(recentTable)
}

// put returns a table to the pool. It clears the references to the caller's strings.
func (r *Recent) put(t *recentTable) {
	if r != nil {
		clear(t.pairs)
		r.tables.Put(t)
	}
}

// key returns the unique handle of a key.
func (t *recentTable) key(k string) unique.Handle[string] {
	slot := &t.keys[recentHash(k)%recentStrings]
	if *slot != (unique.Handle[string]{}) && slot.Value() == k {
		return *slot
	}
	*slot = unique.Make(k)
	return *slot
}

// add inserts a pair in key order, or replaces the value of an existing key.
func (t *recentTable) add(p Pair) {
	i, found := slices.BinarySearchFunc(t.pairs, p.Key, func(p setPair, key string) int { return strings.Compare(p.key.Value(), key) })
	if found {
		t.pairs[i].value = p.Value
		return
	}
	t.pairs = slices.Insert(t.pairs, i, setPair{t.key(p.Key), p.Value})
}

// set builds a set of the pairs.
func (t *recentTable) set() Set {
	if len(t.pairs) == 0 {
		return Set{}
	}
	t.list = t.list[:0]
	t.text = t.text[:0]
	hash := uint32(0)
	size := 0
	for _, p := range t.pairs {
		hash = hash*31 + recentHash(p.key.Value())
		t.list = append(t.list, p.key)
		size += len(p.value)
	}
	end := 0
	for _, p := range t.pairs {
		end += len(p.value)
		if size <= maxNarrow {
			t.text = append(t.text, byte(end))
		} else {
			t.text = binary.LittleEndian.AppendUint32(t.text, uint32(end))
		}
	}
	for _, p := range t.pairs {
		t.text = append(t.text, p.value...)
	}
	list := &t.lists[hash%recentLists]
	if *list == nil || !slices.Equal((*list).list, t.list) {
		*list = &setKeys{slices.Clone(t.list)}
	}
	text := &t.texts[recentHash(t.text)%recentStrings]
	if *text != string(t.text) {
		*text = string(t.text)
	}
	return Set{*list, *text}
}

// recentHash hashes the length, the beginning and the end of a text. Keys often share their
// beginnings, values their beginnings or ends.
func recentHash[S string | []byte](v S) uint32 {
	h := uint32(len(v))
	for i := max(0, len(v)-4); i < len(v); i++ {
		h = h*31 + uint32(v[i])
	}
	for i := range min(4, len(v)) {
		h = h*31 + uint32(v[i])
	}
	return h ^ h>>7 ^ h>>15
}

// MakeSet builds a set of pairs. For duplicate keys the last pair wins.
func MakeSet[P ~struct{ Key, Value string }](pairs []P) Set { return MakeSetLike(nil, pairs) }

// MakeFieldsLike is MakeSetLike without pairs that have an empty value: an absent field reads as
// empty.
func MakeFieldsLike[P ~struct{ Key, Value string }](recent *Recent, pairs []P) Set {
	return makeSet(recent, pairs, func(p Pair) bool { return p.Value != "" })
}

// MakeSetLike is MakeSet for one of many similar sets. It keeps none of the strings.
func MakeSetLike[P ~struct{ Key, Value string }](recent *Recent, pairs []P) Set {
	return makeSet(recent, pairs, func(Pair) bool { return true })
}

// makeSet builds a set of the wanted pairs.
func makeSet[P ~struct{ Key, Value string }](recent *Recent, pairs []P, wanted func(Pair) bool) Set {
	if len(pairs) == 0 {
		return Set{}
	}
	t := recent.table()
	defer recent.put(t)
	t.pairs = t.pairs[:0]
	for _, p := range pairs {
		if pair := Pair(p); wanted(pair) {
			t.add(pair)
		}
	}
	return t.set()
}

// SetOf builds a set of a map.
func SetOf(m map[string]string) Set {
	pairs := make([]Pair, 0, len(m))
	for k, v := range m {
		pairs = append(pairs, Pair{k, v})
	}
	return MakeSet(pairs)
}

// The end of a value takes one byte if all values together have at most maxNarrow bytes, and
// wideEnd bytes otherwise. The length of the text shows which one applies.
const (
	maxNarrow = math.MaxUint8
	wideEnd   = 4
)

// at returns the value of the key at a position.
func (s Set) at(position int) string {
	n := len(s.keys.list)
	if len(s.text) > n+maxNarrow {
		return s.atWide(position)
	}
	start := 0
	if position > 0 {
		start = int(s.text[position-1])
	}
	return s.text[n+start : n+int(s.text[position])]
}

func (s Set) atWide(position int) string {
	end := func(position int) int {
		at := s.text[wideEnd*position:]
		return int(at[0]) | int(at[1])<<8 | int(at[2])<<16 | int(at[3])<<24
	}
	start := 0
	if position > 0 {
		start = end(position - 1)
	}
	values := s.text[wideEnd*len(s.keys.list):]
	return values[start:end(position)]
}

// of returns the value of a key and whether the key is present.
func (s Set) of(key unique.Handle[string]) (string, bool) {
	if s.keys == nil {
		return "", false
	}
	for i, k := range s.keys.list {
		if k == key {
			return s.at(i), true
		}
	}
	return "", false
}

// Lookup returns the value of a key and whether the key is present.
func (s Set) Lookup(key string) (string, bool) {
	if s.keys == nil {
		return "", false
	}
	for i, k := range s.keys.list {
		if k.Value() == key {
			return s.at(i), true
		}
	}
	return "", false
}

// Has reports whether a key is present.
func (s Set) Has(key string) bool {
	_, ok := s.Lookup(key)
	return ok
}

// Get returns the value of a key, or "" if the key is absent.
func (s Set) Get(key string) string {
	v, _ := s.Lookup(key)
	return v
}

// Len returns the number of keys.
func (s Set) Len() int {
	if s.keys == nil {
		return 0
	}
	return len(s.keys.list)
}

// All iterates over the pairs in the order of their keys.
func (s Set) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for i := range s.Len() {
			if !yield(s.keys.list[i].Value(), s.at(i)) {
				return
			}
		}
	}
}

// Fields that every entry has.
const (
	FieldName      = "metadata.name"
	FieldNamespace = "metadata.namespace"
)

// fieldView presents the fields of an entry, including name and namespace, to selectors.
type fieldView Entry

var _ fields.Fields = (*fieldView)(nil)

func (v *fieldView) Has(field string) bool {
	return field == FieldName || field == FieldNamespace || v.Fields().Has(field)
}

func (v *fieldView) Get(field string) string {
	switch field {
	case FieldName:
		return v.Name()
	case FieldNamespace:
		return v.Namespace()
	}
	return v.Fields().Get(field)
}

// EventType is the effect of a change on the objects that a watcher selects.
type EventType uint8

// Event types. Bookmark ends the initial state and carries no entry.
const (
	Added EventType = iota + 1
	Modified
	Deleted
	Bookmark
)

func (t EventType) String() string {
	return [...]string{"", "ADDED", "MODIFIED", "DELETED", "BOOKMARK"}[t]
}

// Event is a change as seen through the selection of a watcher.
type Event struct {
	Type     EventType
	Revision int64
	// Entry is the version that the change created. For Deleted it is the last version that was
	// selected, at the revision of the change. All watchers that receive a change with the same
	// type get the same entry, so encodings can be kept with it.
	//
	// The store deletes all keys of a lease at one revision. A disconnected client resumes after
	// the last revision that it saw. So a deletion that is not the last event of its revision for a
	// watcher carries the revision before. A resuming client receives some events again and loses
	// none.
	Entry *Entry
	// Before is the version before a Modified event, at the revision of the change. It is set if
	// the selection requests it.
	Before *Entry
}

// Initial selects the initial events of a watcher.
type Initial uint8

// Initial events: none, or the current state as Added events in the order of keys, followed by a
// Bookmark at its revision.
const (
	InitialNone Initial = iota
	InitialState
)
