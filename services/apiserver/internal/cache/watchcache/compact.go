package watchcache

import (
	"encoding/binary"
	"math"
	"strings"
	"unique"
)

// compact holds the key and the attributes of an object in one text. The list of label and field
// names is shared with all objects that have the same names.
type compact struct {
	// text is the key, followed by the label values and the field values in the layout of Set. If
	// the key does not end with namespace and name, name is oddName and the text ends with both and
	// their lengths.
	text              string
	keyEnd, labelsEnd uint32
	namespace, name   uint16 // lengths in bytes
	names             unique.Handle[names]
}

// names holds the label keys and the field names of an object.
type names struct{ labels, fields *setKeys }

const (
	oddName = math.MaxUint16
	// oddEnd is the size of the two lengths in bytes.
	oddEnd = 8
)

// ofKey returns a compact with a key only.
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

// endsWith reports whether a key ends with the namespace and name of an object.
func endsWith(key string, a *Attributes) bool {
	rest, ok := strings.CutSuffix(key, a.Name)
	if !ok || len(a.Name) >= oddName {
		return false
	}
	return a.Namespace == "" || len(a.Namespace) < oddName && strings.HasSuffix(rest, "/") && strings.HasSuffix(rest[:len(rest)-1], a.Namespace)
}

// Key returns the key in the store.
func (c *compact) Key() string { return c.text[:c.keyEnd] }

// Name returns metadata.name.
func (c *compact) Name() string {
	if c.name == oddName {
		_, name, _ := c.odd()
		return name
	}
	return c.text[c.keyEnd-uint32(c.name) : c.keyEnd]
}

// Namespace returns metadata.namespace, or "" if there is none.
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

// odd returns the namespace and the name at the end of the text, and where they begin.
func (c *compact) odd() (namespace, name string, start int) {
	end := len(c.text) - oddEnd
	lengths := c.text[end:]
	length := func(b string) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 | int(b[3])<<24 }
	middle := end - length(lengths[4:])
	start = middle - length(lengths)
	return c.text[start:middle], c.text[middle:end], start
}

// Labels returns metadata.labels.
func (c *compact) Labels() Set {
	if c.labelsEnd == c.keyEnd {
		return Set{}
	}
	return Set{c.names.Value().labels, c.text[c.keyEnd:c.labelsEnd]}
}

// Fields returns the fields that selectors may use, without metadata.name and metadata.namespace.
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

// share reuses the text of the previous version if it is equal.
func (c *compact) share(old *compact) {
	if c.text == old.text && c.keyEnd == old.keyEnd && c.labelsEnd == old.labelsEnd {
		c.text = old.text
	}
}
