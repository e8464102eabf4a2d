package watchcache

import (
	"strings"

	"github.com/tidwall/btree"
)

// Snapshot holds all objects of a resource at one revision. It is immutable, and reading it takes
// no lock. It keeps its objects alive.
type Snapshot struct {
	store    *Store
	image    *image
	revision int64
}

// Revision returns the revision of the store that the snapshot shows.
func (s Snapshot) Revision() int64 { return s.revision }

// Variant returns the variant of the resource. Fields that the variant does not have are empty.
func (s Snapshot) Variant() string { return s.store.Variant() }

// Changed returns the revision of the newest change of the resource in the snapshot.
func (s Snapshot) Changed() int64 { return s.image.last }

// Version identifies the contents of a snapshot of a resource. It is comparable.
type Version struct {
	era     uint64
	load    int
	changed int64
}

// Version returns the version of the snapshot. It is equal for two snapshots of a resource only if
// they show the same objects.
func (s Snapshot) Version() Version { return Version{s.image.era, s.image.loads, s.image.last} }

// Len returns the number of objects.
func (s Snapshot) Len() int { return s.image.entries.Len() }

// Get returns the entry of a key.
func (s Snapshot) Get(key string) (*Entry, bool) { return s.image.get(key) }

// Ascend calls fn for the entries whose keys begin with prefix and are not before from, in the
// order of their keys, until fn returns false.
func (s Snapshot) Ascend(prefix, from string, fn func(*Entry) bool) {
	if strings.HasPrefix(s.store.resource.Prefix, prefix) { // avoids a check of each key
		s.image.entries.Ascend(&Entry{compact: searchKey(from)}, fn)
		return
	}
	s.image.entries.Ascend(&Entry{compact: searchKey(max(prefix, from))}, func(e *Entry) bool {
		return strings.HasPrefix(e.Key(), prefix) && fn(e)
	})
}

// Count returns the number of entries that Ascend would visit.
func (s Snapshot) Count(prefix, from string) int {
	start := 0
	if from > prefix || !strings.HasPrefix(s.store.resource.Prefix, prefix) {
		start = s.image.rank(max(prefix, from))
	}
	end := s.image.entries.Len()
	if !strings.HasPrefix(s.store.resource.Prefix, prefix) {
		end = s.image.rank(prefixEnd(prefix))
	}
	return max(0, end-start)
}

// prefixEnd returns the first key after all keys that begin with prefix. Keys are text, in which
// the byte 0xff does not occur.
func prefixEnd(prefix string) string { return prefix + "\xff" }

// ascendIndex calls fn for the entries whose i-th indexed field has a value and that are not before
// from, in the order of their keys, until fn returns false.
func (s Snapshot) ascendIndex(i int, value, from string, fn func(*Entry) bool) {
	s.image.indexes[i].ascend(value, from, fn)
}

// Select calls fn for the selected entries that are not before from, in the order of their keys,
// until fn returns false. It inspects as little as possible: one object, an index of a field or a
// label, a namespace, or all objects.
func (s Snapshot) Select(sel Selection, from string, fn func(*Entry) bool) {
	m := sel.matcher()
	fetched, returned, index := s.selectFrom(m, from, fn)
	s.store.metrics.list(index, fetched, returned)
	if index == noIndex {
		s.countLabelMisses(m, fetched-returned)
	}
}

// Unreadable calls fn for unreadable objects that may be selected, judged by their keys, and that
// are not before from. It visits them in the order of their keys until fn returns false, and
// inspects no readable objects.
func (s Snapshot) Unreadable(sel Selection, from string, fn func(*Entry) bool) {
	if s.image.damagedCount() == 0 {
		return
	}
	m := sel.matcher()
	prefix := m.keyPrefix(s.store.resource.Prefix)
	s.image.damaged.Ascend(&Entry{compact: searchKey(max(prefix, from))}, func(e *Entry) bool {
		return strings.HasPrefix(e.Key(), prefix) && (!m.named(e) || fn(e))
	})
}

// Known reports whether some version of each object can be read.
func (s *Store) Known() bool {
	known := true
	s.Snapshot().Unreadable(Selection{}, "", func(e *Entry) bool {
		known = e.damage.lastReadable != nil
		return known
	})
	return known
}

// noIndex stands for the position of an index if the tree of keys is used instead.
const noIndex = -1

// selectAll is selectFrom without statistics. It reports whether it visited all selected entries:
// false means that Pause ended it.
func (s Snapshot) selectAll(m *matcher, from string, fn func(*Entry) bool) (completed bool) {
	completed = true
	if m.Pause == nil {
		s.selectFrom(m, from, fn)
		return completed
	}
	pausing := *m
	pausing.Pause = func() bool {
		completed = m.Pause()
		return completed
	}
	s.selectFrom(&pausing, from, fn)
	return completed
}

// selectFrom calls fn for selected entries. It returns how many entries it inspected and selected,
// and the index that it used.
func (s Snapshot) selectFrom(m *matcher, from string, fn func(*Entry) bool) (fetched, returned, index int) {
	visit := func(e *Entry) bool {
		fetched++
		if fetched%pauseInterval == 0 && m.Pause != nil && !m.Pause() {
			return false
		}
		if !m.matches(e) {
			return true
		}
		returned++
		return fn(e)
	}
	prefix := m.keyPrefix(s.store.resource.Prefix)
	if m.Name != "" {
		e, ok := s.Get(prefix + m.Name)
		if m.Namespace != "" || ok && e.Namespace() == "" { // otherwise the name may occur in any namespace
			if ok && e.Key() >= from {
				visit(e)
			}
			return fetched, returned, noIndex
		}
	}
	if i, value, ok := m.indexed(s.store.resource.Index); ok && !s.image.selectsDamaged(m) {
		s.ascendIndex(i, value, from, visit)
		return fetched, returned, i
	}
	if l, value, _ := s.image.byLabel(m, prefix); l != nil {
		l.used.Store(s.store.cache.now())
		l.ascendPrefix(value, prefix, from, visit)
		l.saved.Add(int64(max(0, s.Count(prefix, from)-fetched)))
	} else {
		s.Ascend(prefix, from, visit)
	}
	return fetched, returned, noIndex
}

// image holds the objects of a resource at one revision: a tree by key, and a tree by value and key
// for each indexed field. Copies share what does not differ.
type image struct {
	entries *btree.BTreeG[*Entry]
	indexes []valueIndex
	// labels holds the indexes of frequently selected labels.
	labels []labelIndex
	// last is the revision, in an era, of the newest change that the image shows.
	last int64
	era  uint64
	// loads is the number of the cache load that the image comes from. The same revision may be
	// loaded again with more or fewer readable objects.
	loads int
	// damaged holds the unreadable objects. It is nil until the first one.
	damaged *btree.BTreeG[*Entry]
	// rebinds is how often entries were replaced by equal ones.
	rebinds int
	// stored is the size of the values in bytes, and memory the memory that they take.
	stored, memory int64
}

func newImage(index []string, era uint64) *image {
	im := &image{era: era, entries: newKeyTree()}
	for _, field := range index {
		im.indexes = append(im.indexes, newFieldIndex(field))
	}
	return im
}

func newKeyTree() *btree.BTreeG[*Entry] {
	return btree.NewBTreeGOptions(func(a, b *Entry) bool { return a.Key() < b.Key() }, btree.Options{NoLocks: true})
}

// copy returns an image that can change independently of this one. The caller holds the lock under
// which this one is changed or copied.
func (im *image) copy() *image {
	c := &image{
		entries: im.entries.Copy(),
		last:    im.last,
		era:     im.era,
		loads:   im.loads,
		rebinds: im.rebinds,
		stored:  im.stored,
		memory:  im.memory,
	}
	if im.damaged != nil {
		c.damaged = im.damaged.Copy()
	}
	for _, x := range im.indexes {
		c.indexes = append(c.indexes, x.copy())
	}
	for _, l := range im.labels {
		c.labels = append(c.labels, labelIndex{l.valueIndex.copy(), l.labelUse})
	}
	return c
}

func (im *image) get(key string) (*Entry, bool) {
	return im.entries.Get(&Entry{compact: searchKey(key)})
}

// load adds an entry whose key is after all others.
func (im *image) load(e *Entry) {
	im.entries.Load(e)
	im.addToStatistics(e, 1)
	for i := range im.indexes {
		im.indexes[i].replace(nil, e)
	}
}

// replace replaces old by entry. Either may be nil.
func (im *image) replace(old, entry *Entry) {
	im.addToStatistics(old, -1)
	im.addToStatistics(entry, 1)
	if entry != nil {
		im.entries.Set(entry)
	} else {
		im.entries.Delete(old)
	}
	for i := range im.indexes {
		im.indexes[i].replace(old, entry)
	}
	for i := range im.labels {
		im.labels[i].replace(old, entry)
	}
}

// selectsDamaged reports whether the selection includes unreadable objects, regardless of their
// fields and labels.
func (im *image) selectsDamaged(m *matcher) bool { return im.damagedCount() > 0 && !m.Readable }

// damagedCount returns the number of unreadable objects.
func (im *image) damagedCount() int {
	if im.damaged == nil {
		return 0
	}
	return im.damaged.Len()
}

// addToStatistics adds or removes an object in the statistics.
func (im *image) addToStatistics(e *Entry, n int) {
	if e == nil {
		return
	}
	if e.damage != nil {
		if im.damaged == nil {
			im.damaged = newKeyTree()
		}
		if n > 0 {
			im.damaged.Set(e)
		} else {
			im.damaged.Delete(e)
		}
	}
	im.stored += int64(n) * int64(e.Size())
	im.memory += int64(n) * int64(len(e.stored))
}

// rank returns the number of keys before key.
func (im *image) rank(key string) int {
	lo := 0
	hi := im.entries.Len()
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if e, _ := im.entries.GetAt(mid); e.Key() < key {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// Walked returns the number of entries that a selection must visit, or maximum if there are more.
func (s Snapshot) Walked(sel Selection, maximum int) int {
	m := sel.matcher()
	if m.Name != "" {
		return 1
	}
	if i, value, ok := m.indexed(s.store.resource.Index); ok && !s.image.selectsDamaged(m) {
		n := 0
		s.ascendIndex(i, value, "", func(*Entry) bool { n++; return n < maximum })
		return n
	}
	prefix := m.keyPrefix(s.store.resource.Prefix)
	if l, _, n := s.image.byLabel(m, prefix); l != nil {
		return min(n, maximum)
	}
	return min(s.Count(prefix, ""), maximum)
}
