package objects

import (
	"unique"

	"binnacle/libs/sorted"
)

// Image holds the objects of a resource at one revision: a tree by key, and a tree by value and key
// for each indexed field. Copies share what does not differ.
type Image struct {
	ImageOptions
	entries sorted.Set[*Entry]
	indexes []valueIndex
	// labels holds the indexes of frequently selected labels.
	labels []LabelIndex
	// Last is the revision, in an incarnation, of the newest change that the image shows.
	Last int64
	// Loads is the number of the cache load that the image comes from. The same revision may be
	// loaded again with more or fewer readable objects.
	Loads int
	// corrupt holds the corrupt objects. It is nil until the first one.
	corrupt sorted.Set[*Entry]
	// Rebinds is how often entries were replaced by equal ones.
	Rebinds int
	// Stored is the size of the values in bytes, and memory the memory that they take.
	Stored, Memory int64
}

// ImageOptions describe the resource of an image.
type ImageOptions struct {
	// Prefix is the prefix of all keys. Index holds the indexed fields.
	Prefix string
	Index  []string
	// Incarnation is the incarnation of the history that the image belongs to.
	Incarnation uint64
	// Now returns the time in nanoseconds of the cache's clock.
	Now func() int64
}

// NewImage returns an empty image.
func NewImage(o ImageOptions) *Image {
	im := &Image{ImageOptions: o, entries: newKeyTree()}
	for _, field := range o.Index {
		im.indexes = append(im.indexes, newValueIndex(unique.Make(field), (*compact).Fields, false))
	}
	return im
}

func newKeyTree() sorted.Set[*Entry] {
	return sorted.NewSet(func(a, b *Entry) bool { return a.Key() < b.Key() }, 0)
}

// Copy returns an image that can change independently of this one. The caller holds the lock under
// which this one is changed or copied.
func (im *Image) Copy() *Image {
	image := &Image{
		ImageOptions: im.ImageOptions,
		entries:      im.entries.Copy(),
		Last:         im.Last,
		Loads:        im.Loads,
		Rebinds:      im.Rebinds,
		Stored:       im.Stored,
		Memory:       im.Memory,
	}
	if im.corrupt != nil {
		image.corrupt = im.corrupt.Copy()
	}
	for _, x := range im.indexes {
		image.indexes = append(image.indexes, x.copy())
	}
	for _, l := range im.labels {
		image.labels = append(image.labels, LabelIndex{l.valueIndex.copy(), l.labelUse})
	}
	return image
}

// Get returns the entry of a key.
func (im *Image) Get(key string) (*Entry, bool) {
	return im.entries.Get(&Entry{compact: searchKey(key)})
}

// Load adds an entry whose key is after all others.
func (im *Image) Load(e *Entry) {
	im.entries.Load(e)
	im.addToStatistics(e, 1)
	for i := range im.indexes {
		im.indexes[i].Replace(nil, e)
	}
}

// Replace replaces old by entry. Either may be nil.
func (im *Image) Replace(old, entry *Entry) {
	im.addToStatistics(old, -1)
	im.addToStatistics(entry, 1)
	if entry != nil {
		im.entries.Set(entry)
	} else {
		im.entries.Delete(old)
	}
	for i := range im.indexes {
		im.indexes[i].Replace(old, entry)
	}
	for i := range im.labels {
		im.labels[i].Replace(old, entry)
	}
}

// selectsCorrupt reports whether the selection includes corrupt objects, regardless of their
// fields and labels.
func (im *Image) selectsCorrupt(m *Matcher) bool { return im.CorruptCount() > 0 && !m.ExcludeCorrupt }

// CorruptCount returns the number of corrupt objects.
func (im *Image) CorruptCount() int {
	if im.corrupt == nil {
		return 0
	}
	return im.corrupt.Len()
}

// addToStatistics adds or removes an object in the statistics.
func (im *Image) addToStatistics(entry *Entry, count int) {
	if entry == nil {
		return
	}
	if entry.corruption != nil {
		if im.corrupt == nil {
			im.corrupt = newKeyTree()
		}
		if count > 0 {
			im.corrupt.Set(entry)
		} else {
			im.corrupt.Delete(entry)
		}
	}
	im.Stored += int64(count) * int64(entry.Size())
	im.Memory += int64(count) * int64(len(entry.stored))
}

// countBefore returns the number of keys before key.
func (im *Image) countBefore(key string) int {
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

// Bytes returns an upper bound of the memory of an image's trees, without the objects.
func (im *Image) Bytes() int64 {
	const perObject = 24 // a slot in an unshared node, and its part of the node
	return perObject * int64(im.entries.Len()) * int64(1+len(im.indexes)+len(im.labels))
}

// prefixEnd returns the first key after all keys that start with prefix. Keys are text, in which
// the byte 0xff does not occur.
func prefixEnd(prefix string) string { return prefix + "\xff" }

// Version returns the version of the image.
func (im *Image) Version() Version { return Version{im.Incarnation, im.Loads, im.Last} }

// Len returns the number of objects.
func (im *Image) Len() int { return im.entries.Len() }

// Scan calls fn for all entries in the order of their keys, until fn returns false.
func (im *Image) Scan(fn func(*Entry) bool) { im.entries.Scan(fn) }

// Version identifies the contents of a snapshot of a resource. It is comparable.
type Version struct {
	incarnation uint64
	load        int
	changed     int64
}

// SameLoad reports whether one image has become the other by changes of the log alone.
func (im *Image) SameLoad(other *Image) bool {
	return im.Incarnation == other.Incarnation && im.Loads == other.Loads && im.Rebinds == other.Rebinds
}
