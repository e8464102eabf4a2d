package watchcache

import (
	"encoding/binary"
	"unique"

	"github.com/tidwall/btree"
)

// valueIndex holds objects in the order of the values of one label or field. Objects with equal
// values are in the order of their keys. It holds only the entries, which contain the values. An
// index of a field has all objects, with "" for those without the field. An index of a label has
// only the objects with the label.
type valueIndex struct {
	name   *setKeys // exactly one
	labels bool
	tree   *btree.BTreeG[*Entry]
}

func newFieldIndex(field string) valueIndex {
	return newValueIndex(unique.Make(field), (*compact).Fields, false)
}

func newLabelIndex(label unique.Handle[string]) valueIndex {
	return newValueIndex(label, (*compact).Labels, true)
}

func newValueIndex(name unique.Handle[string], set func(*compact) Set, labels bool) valueIndex {
	less := func(a, b *Entry) bool {
		v, _ := set(&a.compact).of(name)
		w, _ := set(&b.compact).of(name)
		if v != w {
			return v < w
		}
		return a.Key() < b.Key()
	}
	return valueIndex{&setKeys{[]unique.Handle[string]{name}}, labels, btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})}
}

func (x valueIndex) copy() valueIndex {
	x.tree = x.tree.Copy()
	return x
}

// of returns the value of an entry, which may be nil, and whether the entry belongs in the index.
func (x *valueIndex) of(e *Entry) (value string, is bool) {
	if e == nil {
		return "", false
	}
	if x.labels {
		return e.Labels().of(x.name.list[0])
	}
	value, _ = e.Fields().of(x.name.list[0])
	return value, true
}

// place returns an entry that sorts where an entry with that value and key would.
func (x *valueIndex) place(value, key string) *Entry {
	var text []byte
	if len(value) <= mostNarrow {
		text = append(make([]byte, 0, 1+len(value)), byte(len(value)))
	} else {
		text = binary.LittleEndian.AppendUint32(make([]byte, 0, wideEnd+len(value)), uint32(len(value)))
	}
	set := Set{x.name, string(append(text, value...))}
	if x.labels {
		return &Entry{compact: newCompact(key, Attributes{Labels: set})}
	}
	return &Entry{compact: newCompact(key, Attributes{Fields: set})}
}

// ascend calls fn for the entries that have the value, starting at a key, until fn returns false.
func (x *valueIndex) ascend(value, from string, fn func(*Entry) bool) {
	x.tree.Ascend(x.place(value, from), func(e *Entry) bool {
		v, _ := x.of(e)
		return v == value && fn(e)
	})
}

// replace replaces old by entry. Either may be nil.
func (x *valueIndex) replace(old, entry *Entry) {
	was, had := x.of(old)
	is, has := x.of(entry)
	if had && (!has || was != is) {
		x.tree.Delete(old)
	}
	if has {
		x.tree.Set(entry)
	}
}
