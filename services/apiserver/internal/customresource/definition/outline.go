package definition

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

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
func Unowned(stored []byte) []byte { return (*Outliner)(nil).Unowned(stored) }

// Outliner makes outlines of definitions that follow each other. Most changes of a
// definition leave its schema alone, so that the text of one that was seen lately need
// not be gone through to know where it ends. It may be used by many at a time.
type Outliner struct {
	lately [4]atomic.Pointer[[]byte]
	next   atomic.Uint32
}

// Unowned is the function of that name.
func (l *Outliner) Unowned(stored []byte) []byte {
	c := cutter{doc: stored, stored: true, unowned: true, lately: l}
	if !c.cut() {
		return stored
	}
	return c.Text
}

// skip is peek.Skip for a schema.
func (l *Outliner) skip(doc []byte, at int) (end int, err error) {
	if l == nil {
		return peek.Skip(doc, at)
	}
	for i := range l.lately {
		// What begins with a whole object has that object there.
		if seen := l.lately[i].Load(); seen != nil && bytes.HasPrefix(doc[at:], *seen) {
			return at + len(*seen), nil
		}
	}
	if end, err = peek.Skip(doc, at); err == nil {
		seen := doc[at:end]
		l.lately[l.next.Add(1)%uint32(len(l.lately))].Store(&seen)
	}
	return end, err
}

func outlineOf(text []byte, stored, unowned bool) (Outline, bool) {
	c := cutter{doc: text, stored: stored, unowned: unowned}
	ok := c.cut()
	return c.Outline, ok
}

// cutter takes schemas out of a definition.
type cutter struct {
	Outline
	doc             []byte
	lately          *Outliner // nil: nothing is remembered
	stored, unowned bool
	// marking has marks stand for schemas, whose texts marked has.
	marking bool
	marked  [][]byte
}

// errUnusual tells that a definition is not laid out as definitions are.
var errUnusual = errors.New("unusual definition")

// cut goes through the definition once.
func (c *cutter) cut() bool {
	if len(c.doc) == 0 || c.doc[0] != '{' {
		return false
	}
	_, _, err := c.members(0, c.root)
	return err == nil
}

// a taker appends the value at a position, or tells that it is left out, and returns the
// position after it.
type taker func(name []byte, at int) (end int, keep bool, err error)

// members copies an object, member by member. each is not asked about members that have
// escapes in their names, because then the definition is not laid out as usual.
func (c *cutter) members(at int, each taker) (end int, keep bool, err error) {
	if at == len(c.doc) || c.doc[at] != '{' {
		return c.copied(nil, at)
	}
	c.Text = append(c.Text, '{')
	first := true
	end, err = peek.MembersAt(c.doc, at, func(name []byte, at int) (int, bool, error) {
		begin := len(c.Text)
		if !first {
			c.Text = append(c.Text, ',')
		}
		c.Text = append(append(append(c.Text, '"'), name...), '"', ':')
		if bytes.IndexByte(name, '\\') >= 0 {
			return 0, false, errUnusual
		}
		end, keep, err := each(name, at)
		if !keep {
			c.Text = c.Text[:begin]
		}
		first = first && !keep
		return end, true, err
	})
	c.Text = append(c.Text, '}')
	return end, true, err
}

// copied appends a value as it is.
func (c *cutter) copied(_ []byte, at int) (end int, keep bool, err error) {
	if end, err = peek.Skip(c.doc, at); err == nil {
		c.Text = append(c.Text, c.doc[at:end]...)
	}
	return end, true, err
}

func (c *cutter) root(name []byte, at int) (end int, keep bool, err error) {
	switch string(name) {
	case "metadata":
		if c.unowned {
			return c.members(at, c.metadata)
		}
	case "spec":
		if c.versions != nil || c.common != nil {
			return 0, false, errUnusual // twice
		}
		return c.members(at, c.spec)
	}
	return c.copied(name, at)
}

func (c *cutter) metadata(name []byte, at int) (end int, keep bool, err error) {
	if string(name) == "managedFields" {
		end, err = peek.Skip(c.doc, at)
		return end, false, err
	}
	return c.copied(name, at)
}

func (c *cutter) spec(name []byte, at int) (end int, keep bool, err error) {
	switch {
	case string(name) == "validation" && c.stored:
		return c.schema(&c.common, at)
	case string(name) == "versions" && at < len(c.doc) && c.doc[at] == '[':
		if c.versions != nil {
			return 0, false, errUnusual
		}
		c.versions = [][]byte{}
		end, err = c.list(at)
		return end, true, err
	}
	return c.copied(name, at)
}

func (c *cutter) list(at int) (end int, err error) {
	c.Text = append(c.Text, '[')
	end, err = peek.ElementsAt(c.doc, at, func(i, at int) (int, bool, error) {
		if i > 0 {
			c.Text = append(c.Text, ',')
		}
		c.versions = append(c.versions, nil)
		if at == len(c.doc) || c.doc[at] != '{' {
			return 0, false, errUnusual
		}
		return c.members(at, c.version)
	})
	c.Text = append(c.Text, ']')
	return end, err
}

func (c *cutter) version(name []byte, at int) (end int, keep bool, err error) {
	if string(name) != "schema" {
		return c.copied(name, at)
	}
	return c.schema(&c.versions[len(c.versions)-1], at)
}

// schema notes a schema, of which there is one in its place.
func (c *cutter) schema(into *[]byte, at int) (end int, keep bool, err error) {
	if *into != nil || at == len(c.doc) || c.doc[at] != '{' {
		return 0, false, errUnusual
	}
	if end, err = c.lately.skip(c.doc, at); err != nil {
		return 0, false, err
	}
	*into = c.doc[at:end]
	return end, c.mark(*into), nil
}

// mark appends what stands for a schema, where that is not just left out.
func (c *cutter) mark(schema []byte) (keep bool) {
	if !c.marking {
		return false
	}
	i := slices.IndexFunc(c.marked, func(m []byte) bool { return bytes.Equal(m, schema) })
	if i < 0 {
		i = len(c.marked)
		c.marked = append(c.marked, schema)
	}
	c.Text = append(c.Text, markOf(i)...)
	return true
}

// markOf is what a schema would say that has nothing but a title.
func markOf(i int) string { return fmt.Sprintf(`{"openAPIV3Schema":{"title":"#%d"}}`, i) }

// Marked is the JSON of a stored definition with marks in place of its schemas, which
// decodes to a definition and is encoded as any; restore puts the schemas where the
// marks are in the JSON of such a one. False is for what is not laid out as definitions
// are, or has lost a mark.
func Marked(stored []byte) (text []byte, restore func([]byte) ([]byte, bool), ok bool) {
	c := cutter{doc: stored, stored: true, marking: true}
	if !c.cut() {
		return nil, nil, false
	}
	return c.Text, func(text []byte) ([]byte, bool) { return unmarked(text, c.marked) }, true
}

// unmarked has schemas where a text has marks, each at least once. They are marks
// wherever they are: within strings there would be escapes.
func unmarked(text []byte, schemas [][]byte) ([]byte, bool) {
	before, after, _ := strings.Cut(markOf(0), "0")
	out := make([]byte, 0, len(text)+size(schemas))
	there := make([]bool, len(schemas))
	for {
		head, rest, found := bytes.Cut(text, []byte(before))
		out = append(out, head...)
		if !found {
			return out, !slices.Contains(there, false)
		}
		number, rest, _ := bytes.Cut(rest, []byte(after))
		i, err := strconv.Atoi(string(number))
		if err != nil || i < 0 || i >= len(schemas) {
			return nil, false
		}
		out, text, there[i] = append(out, schemas[i]...), rest, true
	}
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
