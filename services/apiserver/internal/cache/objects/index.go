package objects

import (
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	"binnacle/libs/sorted"
	"binnacle/services/apiserver/internal/cache/attributes"
)

// valueIndex holds objects in the order of the values of one label or field. Objects with equal
// values are in the order of their keys. The values are read from the entries and not stored again.
// An index of a field has all objects, with "" for those without the field. An index of a label has
// only the objects with the label.
type valueIndex struct {
	name   unique.Handle[string]
	keys   *attributes.Keys // the name alone
	labels bool
	tree   sorted.Set[*Entry]
}

// newValueIndex returns an empty index of a field or label. set returns the fields or the labels of
// an entry.
func newValueIndex(name unique.Handle[string], set func(*compact) attributes.Set, labels bool) valueIndex {
	less := func(a, b *Entry) bool {
		valueA, _ := set(&a.compact).Value(name)
		valueB, _ := set(&b.compact).Value(name)
		if valueA != valueB {
			return valueA < valueB
		}
		return a.Key() < b.Key()
	}
	return valueIndex{name, attributes.SingleKey(name), labels, sorted.NewSet(less, 0)}
}

// copy returns an index that can change independently.
func (x valueIndex) copy() valueIndex {
	x.tree = x.tree.Copy()
	return x
}

// value returns the value of an entry, which may be nil, and whether the entry belongs in the
// index.
func (x *valueIndex) value(e *Entry) (value string, indexed bool) {
	if e == nil {
		return "", false
	}
	if x.labels {
		return e.Labels().Value(x.name)
	}
	value, _ = e.Fields().Value(x.name)
	return value, true
}

// searchKey returns an entry that sorts where an entry with that value and key would.
func (x *valueIndex) searchKey(value, key string) *Entry {
	set := x.keys.WithValue(value)
	if x.labels {
		return &Entry{compact: newCompact(key, attributes.Attributes{Labels: set})}
	}
	return &Entry{compact: newCompact(key, attributes.Attributes{Fields: set})}
}

// ascend calls fn for the entries that have the value, starting at a key, until fn returns false.
func (x *valueIndex) ascend(value, from string, fn func(*Entry) bool) {
	x.tree.Ascend(x.searchKey(value, from), func(e *Entry) bool {
		v, _ := x.value(e)
		return v == value && fn(e)
	})
}

// Replace replaces old by entry. Either may be nil.
func (x *valueIndex) Replace(old, entry *Entry) {
	oldValue, wasIndexed := x.value(old)
	newValue, isIndexed := x.value(entry)
	if wasIndexed && (!isIndexed || oldValue != newValue) {
		x.tree.Delete(old)
	}
	if isIndexed {
		x.tree.Set(entry)
	}
}

const (
	// indexThreshold is the number of inspections without a match after which a label gets an index,
	// as a multiple of the number of objects. Building the index costs about as much.
	indexThreshold = 10
	// maxLabelIndexes is how many labels of a resource have an index, maxCountedLabels how many are
	// counted.
	maxLabelIndexes, maxCountedLabels = 4, 64
	// labelIndexTTL is how long an index is kept after its last use.
	labelIndexTTL = 5 * time.Minute
)

// LabelIndex holds the objects that have a label. The labels that clients select on are not known
// in advance, so indexes are built and removed by use. A list by a label scans all objects, and the
// cache counts the objects that did not match. Once the count reaches indexThreshold times the number
// of objects, the cache builds an index of the label from an immutable state and then adds the
// changes made during the build. A resource has at most maxLabelIndexes of them, those that save
// most inspections. An index is removed when it was not used for labelIndexTTL. Readers and writers
// use it like an index of a field.
type LabelIndex struct {
	valueIndex
	*labelUse
}

func (l *LabelIndex) label() unique.Handle[string] { return l.name }

// labelUse holds the usage of an index, shared by all its copies.
type labelUse struct {
	used  atomic.Int64 // time of the last use, in nanoseconds of the cache's clock
	saved atomic.Int64 // inspections that the index avoided; older inspections count less
}

// LabelMisses counts objects that lists by a label inspected without a match.
type LabelMisses struct {
	mu     sync.Mutex // leaf lock
	misses map[unique.Handle[string]]int
}

// Add adds misses to the count of a label. objects is the number of objects of the resource. Once the
// count reaches indexThreshold*objects, Add returns that product, which approximates the inspections
// that an index would have avoided, and resets the count. Otherwise it returns 0.
func (m *LabelMisses) Add(label unique.Handle[string], misses, objects int) (avoided int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.misses[label]; !ok && len(m.misses) >= maxCountedLabels {
		m.evictLeast()
	}
	if m.misses == nil {
		m.misses = map[unique.Handle[string]]int{}
	}
	m.misses[label] += misses
	if m.misses[label] < indexThreshold*objects {
		return 0
	}
	delete(m.misses, label)
	return indexThreshold * objects
}

// evictLeast removes the label with the lowest count.
func (m *LabelMisses) evictLeast() {
	var least unique.Handle[string]
	n := -1
	for label, misses := range m.misses {
		if n < 0 || misses < n {
			least = label
			n = misses
		}
	}
	delete(m.misses, least)
}

// Decay halves the counts, so that old misses count less than new ones.
func (m *LabelMisses) Decay() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for label := range m.misses {
		m.misses[label] /= 2
	}
	maps.DeleteFunc(m.misses, func(_ unique.Handle[string], n int) bool { return n == 0 })
}

// bestLabelIndex returns the label index with the fewest objects for the selection, the value to
// look up, and how many objects with keys below prefix have it.
func (im *Image) bestLabelIndex(m *Matcher, prefix string) (_ *LabelIndex, value string, objects int) {
	if len(im.labels) == 0 || im.selectsCorrupt(m) {
		return nil, "", 0
	}
	var best *LabelIndex
	for label, labelValue := range m.FixedLabels() {
		position := im.labelIndex(label)
		if position < 0 {
			continue
		}
		if n := im.labels[position].count(labelValue, prefix); best == nil || n < objects {
			best = &im.labels[position]
			value = labelValue
			objects = n
		}
	}
	return best, value, objects
}

// count returns how many objects with keys below prefix have the value.
func (l *LabelIndex) count(value, prefix string) int {
	rank := func(key string) int {
		return sort.Search(l.tree.Len(), func(i int) bool {
			e, _ := l.tree.GetAt(i)
			v, _ := l.value(e)
			return v > value || v == value && e.Key() >= key
		})
	}
	return rank(prefixEnd(prefix)) - rank(prefix)
}

// ascendPrefix calls fn, in the order of keys, for the entries that have the value and a key that
// starts with prefix. It starts at the key from and stops when fn returns false.
func (l *LabelIndex) ascendPrefix(value, prefix, from string, fn func(*Entry) bool) {
	l.ascend(value, max(prefix, from), func(e *Entry) bool { return strings.HasPrefix(e.Key(), prefix) && fn(e) })
}

// labelIndex returns the position of a label's index, or -1.
func (im *Image) labelIndex(label unique.Handle[string]) int {
	return slices.IndexFunc(im.labels, func(l LabelIndex) bool { return l.label() == label })
}

// HasLabelIndex reports whether a label has an index.
func (im *Image) HasLabelIndex(label unique.Handle[string]) bool { return im.labelIndex(label) >= 0 }

// LabelSlot returns where to put an index that would have avoided the given number of inspections.
// If a resource can have one more index, that is the position after the others. Otherwise it is the
// position of the index that saved the fewest inspections, or -1 if that one saved at least as many.
func (im *Image) LabelSlot(avoided int) int {
	least := len(im.labels)
	if least < maxLabelIndexes {
		return least
	}
	least = 0
	for i, l := range im.labels {
		if l.saved.Load() < im.labels[least].saved.Load() {
			least = i
		}
	}
	if im.labels[least].saved.Load() >= int64(avoided) {
		return -1
	}
	return least
}

// NewLabelIndex returns an index of the objects that have a label. The image must be immutable.
func (im *Image) NewLabelIndex(label unique.Handle[string]) LabelIndex {
	labelIndex := LabelIndex{newValueIndex(label, (*compact).Labels, true), &labelUse{}}
	labelIndex.used.Store(im.Now())
	byValue := map[string][]*Entry{} // in the order of keys
	im.entries.Scan(func(e *Entry) bool {
		if value, ok := labelIndex.value(e); ok {
			byValue[value] = append(byValue[value], e)
		}
		return true
	})
	for _, value := range slices.Sorted(maps.Keys(byValue)) {
		for _, e := range byValue[value] {
			labelIndex.tree.Load(e)
		}
	}
	return labelIndex
}

// SetLabelIndex puts an index in a slot that LabelSlot returned.
func (im *Image) SetLabelIndex(slot int, l LabelIndex) {
	im.labels = append(slices.Clone(im.labels[:slot]), append([]LabelIndex{l}, im.labels[min(slot+1, len(im.labels)):]...)...)
}

// DropUnusedLabels halves the savings of all indexes, so that old savings count less. It then removes
// the indexes that were not used for labelIndexTTL and reports whether there were some.
func (im *Image) DropUnusedLabels(now int64) bool {
	for _, index := range im.labels {
		index.saved.Store(index.saved.Load() / 2)
	}
	unused := func(index LabelIndex) bool { return now-index.used.Load() > int64(labelIndexTTL) }
	if !slices.ContainsFunc(im.labels, unused) {
		return false
	}
	im.labels = slices.DeleteFunc(slices.Clone(im.labels), unused)
	return true
}
