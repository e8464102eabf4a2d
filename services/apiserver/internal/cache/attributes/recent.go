package attributes

import (
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"unique"
)

// InternCache caches the parts that recent sets were built from. Objects of one resource share all
// field names, most label keys and many values. The cache finds these without a lookup in the
// process-wide table of unique strings. It is safe for concurrent use. The zero value is empty, and
// a nil InternCache caches nothing.
type InternCache struct{ tables sync.Pool }

// internTable is the cache of one goroutine. A slot holds the last string or list with its hash.
type internTable struct {
	keys  [recentStrings]unique.Handle[string]
	lists [recentLists]*Keys
	texts [recentStrings]string

	// Scratch space.
	pairs []internedPair
	list  []unique.Handle[string]
	text  []byte
}

// internedPair is a Pair with an interned key.
type internedPair struct {
	key   unique.Handle[string]
	value string
}

// recentStrings and recentLists are the numbers of slots in an internTable: powers of two.
const recentStrings, recentLists = 256, 64

// acquireTable returns a table that the caller owns until it calls releaseTable.
func (c *InternCache) acquireTable() *internTable {
	if c == nil {
		return new(internTable)
	}
	if t, ok := c.tables.Get().(*internTable); ok {
		return t
	}
	return new(internTable)
}

// releaseTable returns a table to the pool. It clears the references to the caller's strings.
func (c *InternCache) releaseTable(t *internTable) {
	if c != nil {
		clear(t.pairs)
		c.tables.Put(t)
	}
}

// internKey returns the unique handle of a key.
func (t *internTable) internKey(k string) unique.Handle[string] {
	slot := &t.keys[slotHash(k)%recentStrings]
	if *slot != (unique.Handle[string]{}) && slot.Value() == k {
		return *slot
	}
	*slot = unique.Make(k)
	return *slot
}

// addPair inserts a pair in key order, or replaces the value of an existing key.
func (t *internTable) addPair(p Pair) {
	i, found := slices.BinarySearchFunc(t.pairs,
		p.Key, func(p internedPair, key string) int { return strings.Compare(p.key.Value(), key) })
	if found {
		t.pairs[i].value = p.Value
		return
	}
	t.pairs = slices.Insert(t.pairs, i, internedPair{t.internKey(p.Key), p.Value})
}

// buildSet returns the set of the added pairs.
func (t *internTable) buildSet() Set {
	if len(t.pairs) == 0 {
		return Set{}
	}
	t.list = t.list[:0]
	t.text = t.text[:0]
	hash := uint32(0)
	size := 0
	for _, p := range t.pairs {
		hash = hash*31 + slotHash(p.key.Value())
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
		*list = &Keys{slices.Clone(t.list)}
	}
	text := &t.texts[slotHash(t.text)%recentStrings]
	if *text != string(t.text) {
		*text = string(t.text)
	}
	return Set{*list, *text}
}

// slotHash hashes the length, the beginning and the end of a text. Keys often share their
// beginnings, values their beginnings or ends.
func slotHash[S string | []byte](v S) uint32 {
	h := uint32(len(v))
	for i := max(0, len(v)-4); i < len(v); i++ {
		h = h*31 + uint32(v[i])
	}
	for i := range min(4, len(v)) {
		h = h*31 + uint32(v[i])
	}
	return h ^ h>>7 ^ h>>15
}

// SetFromPairs builds a set of pairs. For duplicate keys the last pair wins.
func SetFromPairs[P ~struct{ Key, Value string }](pairs []P) Set { return SetFromPairsLike(nil, pairs) }

// FieldsFromPairsLike is SetFromPairsLike without the pairs that have an empty value, because an absent field
// reads as empty.
func FieldsFromPairsLike[P ~struct{ Key, Value string }](recent *InternCache, pairs []P) Set {
	return makeSet(recent, pairs, func(p Pair) bool { return p.Value != "" })
}

// SetFromPairsLike is SetFromPairs for one of many similar sets, which share their parts by recent. The set
// keeps none of the strings of pairs alive.
func SetFromPairsLike[P ~struct{ Key, Value string }](recent *InternCache, pairs []P) Set {
	return makeSet(recent, pairs, func(Pair) bool { return true })
}

// makeSet builds a set of the pairs for which isWanted is true.
func makeSet[P ~struct{ Key, Value string }](recent *InternCache, pairs []P, isWanted func(Pair) bool) Set {
	if len(pairs) == 0 {
		return Set{}
	}
	t := recent.acquireTable()
	defer recent.releaseTable(t)
	t.pairs = t.pairs[:0]
	for _, p := range pairs {
		if pair := Pair(p); isWanted(pair) {
			t.addPair(pair)
		}
	}
	return t.buildSet()
}
