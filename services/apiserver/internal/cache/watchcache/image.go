package watchcache

import (
	"github.com/tidwall/btree"
)

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
	// rebound is how often entries were replaced by equal ones.
	rebound int
	// stored is the size of the values in bytes, and kept the memory that they take.
	stored, kept int64
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
	c := &image{entries: im.entries.Copy(), last: im.last, era: im.era, loads: im.loads, rebound: im.rebound, stored: im.stored, kept: im.kept}
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
	return im.entries.Get(&Entry{compact: ofKey(key)})
}

// load adds an entry whose key is after all others.
func (im *image) load(e *Entry) {
	im.entries.Load(e)
	im.count(e, 1)
	for i := range im.indexes {
		im.indexes[i].replace(nil, e)
	}
}

// replace replaces old by entry. Either may be nil.
func (im *image) replace(old, entry *Entry) {
	im.count(old, -1)
	im.count(entry, 1)
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
func (im *image) selectsDamaged(m *matcher) bool { return im.damage() > 0 && !m.Readable }

// damage returns the number of unreadable objects.
func (im *image) damage() int {
	if im.damaged == nil {
		return 0
	}
	return im.damaged.Len()
}

// count adds or removes an object in the statistics.
func (im *image) count(e *Entry, n int) {
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
	im.kept += int64(n) * int64(len(e.stored))
}

// rank returns the number of keys before key.
func (im *image) rank(key string) int {
	lo, hi := 0, im.entries.Len()
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
