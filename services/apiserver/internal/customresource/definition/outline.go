package definition

import (
	"bytes"

	v1 "binnacle/services/apiserver/internal/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/customresource/peek"
)

// Outline is the JSON of a definition without its schemas, which are most of it and
// which most rules do not look at.
type Outline struct {
	// Text is the JSON of the rest, which decodes as the whole does.
	Text []byte
	// common is what a stored definition says once for all its versions, and versions
	// what each says itself; nil where there is none.
	common   []byte
	versions [][]byte
}

// OutlineOf a definition as it is stored. False is for what is not laid out as
// definitions are: the whole has to be read then.
func OutlineOf(stored []byte) (Outline, bool) { return outlineOf(stored, true, false) }

// OutlineOfServed is OutlineOf for a definition in the version v1.
func OutlineOfServed(text []byte) (Outline, bool) { return outlineOf(text, false, false) }

// Unowned is the JSON of a stored definition without its schemas and without who owns
// its fields. What is not laid out as definitions are comes back as it is.
func Unowned(stored []byte) []byte {
	o, ok := outlineOf(stored, true, true)
	if !ok {
		return stored
	}
	return o.Text
}

func outlineOf(text []byte, stored, unowned bool) (Outline, bool) {
	c := cutter{stored: stored, unowned: unowned}
	if len(text) == 0 || text[0] != '{' {
		return c.Outline, false
	}
	ok := c.members(text, c.root)
	return c.Outline, ok
}

// cutter takes schemas out of a definition.
type cutter struct {
	Outline
	stored, unowned bool
}

// members copies an object, member by member. each appends a value, or tells that it is
// left out; it is not asked about members that are twice, or have escapes in their
// names, because then the definition is not laid out as usual.
func (c *cutter) members(object []byte, each func(name, value []byte) (keep, ok bool)) bool {
	if object[0] != '{' {
		c.Text = append(c.Text, object...)
		return true
	}
	c.Text = append(c.Text, '{')
	first, good := true, true
	err := peek.Members(object, func(name, value []byte) bool {
		begin := len(c.Text)
		if !first {
			c.Text = append(c.Text, ',')
		}
		c.Text = append(append(append(c.Text, '"'), name...), '"', ':')
		if bytes.IndexByte(name, '\\') >= 0 {
			good = false
			return false
		}
		keep, ok := each(name, value)
		if good = ok; !ok {
			return false
		}
		if !keep {
			c.Text = c.Text[:begin]
			return true
		}
		first = false
		return true
	})
	c.Text = append(c.Text, '}')
	return good && err == nil
}

// copied appends a value as it is.
func (c *cutter) copied(value []byte) (keep, ok bool) {
	c.Text = append(c.Text, value...)
	return true, true
}

func (c *cutter) root(name, value []byte) (keep, ok bool) {
	switch string(name) {
	case "metadata":
		if c.unowned {
			return true, c.members(value, c.metadata)
		}
	case "spec":
		if c.versions != nil || c.common != nil {
			return false, false // twice
		}
		return true, c.members(value, c.spec)
	}
	return c.copied(value)
}

func (c *cutter) metadata(name, value []byte) (keep, ok bool) {
	if string(name) == "managedFields" {
		return false, true
	}
	return c.copied(value)
}

func (c *cutter) spec(name, value []byte) (keep, ok bool) {
	switch {
	case string(name) == "validation" && c.stored:
		if c.common != nil {
			return false, false
		}
		c.common = value
		return false, value[0] == '{'
	case string(name) == "versions" && value[0] == '[':
		if c.versions != nil {
			return false, false
		}
		c.versions = [][]byte{}
		return true, c.list(value)
	}
	return c.copied(value)
}

func (c *cutter) list(versions []byte) bool {
	c.Text = append(c.Text, '[')
	good := true
	err := peek.Elements(versions, func(i int, version []byte) bool {
		if i > 0 {
			c.Text = append(c.Text, ',')
		}
		c.versions = append(c.versions, nil)
		good = version[0] == '{' && c.members(version, c.version)
		return good
	})
	c.Text = append(c.Text, ']')
	return good && err == nil
}

func (c *cutter) version(name, value []byte) (keep, ok bool) {
	if string(name) != "schema" {
		return c.copied(value)
	}
	last := &c.versions[len(c.versions)-1]
	if *last != nil || value[0] != '{' {
		return false, false
	}
	*last = value
	return false, true
}

// of is what version i says of its schema; nil when that is nothing.
func (o *Outline) of(i int) []byte {
	if o.common != nil {
		return o.common
	}
	return o.versions[i]
}

// Read gives a definition in v1, which was decoded from the outline, its schemas.
// False is for what is unusual about them: the whole has to be read then.
func (o *Outline) Read(d *v1.CustomResourceDefinition) bool {
	if len(o.versions) != len(d.Spec.Versions) {
		return false
	}
	for i := range d.Spec.Versions {
		text := o.of(i)
		if text == nil {
			continue
		}
		v := &v1.CustomResourceValidation{}
		known := true
		err := peek.Members(text, func(name, value []byte) bool {
			if known = string(name) == "openAPIV3Schema" && v.OpenAPIV3Schema == nil; known {
				v.OpenAPIV3Schema, known = v1.ReadPlainSchema(value)
			}
			return known
		})
		if err != nil || !known {
			return false
		}
		d.Spec.Versions[i].Schema = v
	}
	return true
}

// Whole is the JSON of a definition in v1 with its schemas, given that without them.
func (o *Outline) Whole(served []byte) ([]byte, bool) {
	list, err := peek.Find(served, "spec", "versions")
	if err != nil {
		return nil, false
	}
	if len(o.versions) == 0 {
		return served, list == nil || list[0] != '['
	}
	out := make([]byte, 0, len(served)+len(o.common)*len(o.versions)+size(o.versions))
	at := cap(served) - cap(list) // the list is a part of what is served
	out = append(append(out, served[:at]...), '[')
	n := 0
	err = peek.Elements(list, func(i int, version []byte) bool {
		if n++; i >= len(o.versions) {
			return false
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = appendVersion(out, version, o.of(i))
		return true
	})
	if err != nil || n != len(o.versions) {
		return nil, false
	}
	return append(append(out, ']'), served[at+len(list):]...), true
}

func size(parts [][]byte) (n int) {
	for _, p := range parts {
		n += len(p) + len(`"schema":,`)
	}
	return n
}

// appendVersion appends a version in v1, which has a name, with its schema where Go
// writes it.
func appendVersion(dst, version, schema []byte) []byte {
	if schema == nil {
		return append(dst, version...)
	}
	at := len(version) - 1
	_ = peek.Members(version, func(name, value []byte) bool {
		switch string(name) {
		case "subresources", "additionalPrinterColumns", "selectableFields": // these come after it
			at = cap(version) - cap(name) - 1
			return false
		}
		return true
	})
	dst = append(dst, version[:at]...)
	if at == len(version)-1 {
		return append(append(append(dst, `,"schema":`...), schema...), '}')
	}
	return append(append(append(append(dst, `"schema":`...), schema...), ','), version[at:]...)
}
