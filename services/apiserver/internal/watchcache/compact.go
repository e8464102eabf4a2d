package watchcache

import (
	"encoding/binary"
	"math"
	"strings"
	"unique"
)

// compact is the key and the attributes of an object, in one text and a list of names that it shares
// with all objects which have the same.
type compact struct {
	// text is the key, then the values of labels and those of fields, as sets have them. Where the key
	// does not end with namespace and name, which is oddName then, it ends with both and their lengths.
	text              string
	keyEnd, labelsEnd uint32
	namespace, name   uint16 // their lengths
	names             unique.Handle[names]
}

// names are those of labels and of fields.
type names struct{ labels, fields *setKeys }

const (
	oddName = math.MaxUint16
	// oddEnd is what the lengths of both take.
	oddEnd = 8
)

// ofKey has a key only.
func ofKey(key string) compact {
	return compact{text: key, keyEnd: uint32(len(key)), labelsEnd: uint32(len(key))}
}

func newCompact(key string, a Attributes) compact {
	c := compact{keyEnd: uint32(len(key)), labelsEnd: uint32(len(key) + len(a.Labels.text)), names: unique.Make(names{a.Labels.keys, a.Fields.keys})}
	odd := 0
	if c.namespace, c.name = uint16(len(a.Namespace)), uint16(len(a.Name)); !endsWith(key, &a) {
		c.name, odd = oddName, len(a.Namespace)+len(a.Name)+oddEnd
	}
	var b strings.Builder
	b.Grow(int(c.labelsEnd) + len(a.Fields.text) + odd)
	b.WriteString(key)
	b.WriteString(a.Labels.text)
	b.WriteString(a.Fields.text)
	if odd > 0 {
		b.WriteString(a.Namespace)
		b.WriteString(a.Name)
		var lengths [oddEnd]byte
		binary.LittleEndian.PutUint32(lengths[:], uint32(len(a.Namespace)))
		binary.LittleEndian.PutUint32(lengths[4:], uint32(len(a.Name)))
		b.Write(lengths[:])
	}
	c.text = b.String()
	return c
}

// endsWith tells whether a key is that of namespace and name.
func endsWith(key string, a *Attributes) bool {
	rest, ok := strings.CutSuffix(key, a.Name)
	if !ok || len(a.Name) >= oddName {
		return false
	}
	return a.Namespace == "" || len(a.Namespace) < oddName && strings.HasSuffix(rest, "/") && strings.HasSuffix(rest[:len(rest)-1], a.Namespace)
}

// Key is the key in the store.
func (c *compact) Key() string { return c.text[:c.keyEnd] }

// Name is metadata.name.
func (c *compact) Name() string {
	if c.name == oddName {
		_, name, _ := c.odd()
		return name
	}
	return c.text[c.keyEnd-uint32(c.name) : c.keyEnd]
}

// Namespace is metadata.namespace, "" where there is none.
func (c *compact) Namespace() string {
	if c.name == oddName {
		namespace, _, _ := c.odd()
		return namespace
	}
	if c.namespace == 0 {
		return ""
	}
	end := c.keyEnd - uint32(c.name) - 1
	return c.text[end-uint32(c.namespace) : end]
}

// odd is the namespace and the name behind all else, and where they begin.
func (c *compact) odd() (namespace, name string, start int) {
	end := len(c.text) - oddEnd
	lengths := c.text[end:]
	length := func(b string) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 | int(b[3])<<24 }
	middle := end - length(lengths[4:])
	start = middle - length(lengths)
	return c.text[start:middle], c.text[middle:end], start
}

// Labels are metadata.labels.
func (c *compact) Labels() Set {
	if c.labelsEnd == c.keyEnd {
		return Set{}
	}
	return Set{c.names.Value().labels, c.text[c.keyEnd:c.labelsEnd]}
}

// Fields are those that selectors may name, without metadata.name and metadata.namespace.
func (c *compact) Fields() Set {
	end := len(c.text)
	if c.name == oddName {
		_, _, end = c.odd()
	}
	if int(c.labelsEnd) == end {
		return Set{}
	}
	return Set{c.names.Value().fields, c.text[c.labelsEnd:end]}
}

// share has the text of the one before it, if it is the same.
func (c *compact) share(old *compact) {
	if c.text == old.text && c.keyEnd == old.keyEnd && c.labelsEnd == old.labelsEnd {
		c.text = old.text
	}
}
