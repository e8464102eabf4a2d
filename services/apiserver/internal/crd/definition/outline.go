package definition

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"binnacle/services/apiserver/internal/json/jsontext"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// Outline is the JSON of a definition without its schemas. They are most of the JSON, and most
// rules do not need them.
type Outline struct {
	// Text is the JSON without schemas. It decodes like the whole definition.
	Text []byte
	// common is the schema that a stored definition has for all versions. versions holds the schema
	// of each version, nil for a version without one.
	common   []byte
	versions [][]byte
}

// OutlineOf returns the outline of a stored definition. It returns false if the definition has an
// unusual layout. The caller then has to read the whole definition.
func OutlineOf(stored []byte) (Outline, bool) { return outlineOf(stored, true, false) }

// OutlineOfServed is OutlineOf for a definition in v1.
func OutlineOfServed(text []byte) (Outline, bool) { return outlineOf(text, false, false) }

// Unowned returns the JSON of a stored definition without schemas and managed fields. It returns a
// definition with an unusual layout unchanged.
func Unowned(stored []byte) []byte { return (*Outliner)(nil).Unowned(stored) }

// Outliner computes the outlines of successive definitions. Most changes of a definition leave its
// schema unchanged. The Outliner remembers recent schemas and skips them without scanning. It is
// safe for concurrent use.
type Outliner struct {
	lately [4]atomic.Pointer[[]byte]
	next   atomic.Uint32
}

// Unowned is the function Unowned with the Outliner's memory.
func (l *Outliner) Unowned(stored []byte) []byte {
	c := outlineBuilder{doc: stored, stored: true, unowned: true, lately: l}
	if !c.cut() {
		return stored
	}
	return c.Text
}

// skip is jsontext.Skip for a schema.
func (l *Outliner) skip(doc []byte, at int) (end int, err error) {
	if l == nil {
		return jsontext.Skip(doc, at)
	}
	for i := range l.lately {
		// A text that starts with a complete object has that object at its start.
		if seen := l.lately[i].Load(); seen != nil && bytes.HasPrefix(doc[at:], *seen) {
			return at + len(*seen), nil
		}
	}
	if end, err = jsontext.Skip(doc, at); err == nil {
		seen := doc[at:end]
		l.lately[l.next.Add(1)%uint32(len(l.lately))].Store(&seen)
	}
	return end, err
}

func outlineOf(text []byte, stored, unowned bool) (Outline, bool) {
	c := outlineBuilder{doc: text, stored: stored, unowned: unowned}
	ok := c.cut()
	return c.Outline, ok
}

// outlineBuilder removes schemas from a definition.
type outlineBuilder struct {
	Outline
	doc             []byte
	lately          *Outliner // nil: no schema is remembered
	stored, unowned bool
	// marking inserts marks in place of schemas. marked holds the schemas.
	marking bool
	marked  [][]byte
}

// errUnusual reports that a definition has an unusual layout.
var errUnusual = errors.New("unusual definition")

// cut scans the definition once.
func (c *outlineBuilder) cut() bool {
	if len(c.doc) == 0 || c.doc[0] != '{' {
		return false
	}
	_, _, err := c.members(0, c.root)
	return err == nil
}

// A taker appends the value at a position, or reports that it is left out. It returns the position
// after the value.
type memberFunc func(name []byte, at int) (end int, keep bool, err error)

// members copies an object, member by member. It does not call each for names with escapes, because
// such a definition has an unusual layout.
func (c *outlineBuilder) members(at int, each memberFunc) (end int, keep bool, err error) {
	if at == len(c.doc) || c.doc[at] != '{' {
		return c.copied(nil, at)
	}
	c.Text = append(c.Text, '{')
	first := true
	end, err = jsontext.MembersAt(c.doc, at, func(name []byte, at int) (int, bool, error) {
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

// copied appends a value unchanged.
func (c *outlineBuilder) copied(_ []byte, at int) (end int, keep bool, err error) {
	if end, err = jsontext.Skip(c.doc, at); err == nil {
		c.Text = append(c.Text, c.doc[at:end]...)
	}
	return end, true, err
}

// root copies a member of the definition, or parts of it.
func (c *outlineBuilder) root(name []byte, at int) (end int, keep bool, err error) {
	switch string(name) {
	case "metadata":
		if c.unowned {
			return c.members(at, c.metadata)
		}
	case "spec":
		if c.versions != nil || c.common != nil {
			return 0, false, errUnusual // repeated
		}
		return c.members(at, c.spec)
	}
	return c.copied(name, at)
}

func (c *outlineBuilder) metadata(name []byte, at int) (end int, keep bool, err error) {
	if string(name) == "managedFields" {
		end, err = jsontext.Skip(c.doc, at)
		return end, false, err
	}
	return c.copied(name, at)
}

// spec copies a member of the spec. Schemas are replaced by marks.
func (c *outlineBuilder) spec(name []byte, at int) (end int, keep bool, err error) {
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

// list copies the list of versions.
func (c *outlineBuilder) list(at int) (end int, err error) {
	c.Text = append(c.Text, '[')
	end, err = jsontext.ElementsAt(c.doc, at, func(i, at int) (int, bool, error) {
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

func (c *outlineBuilder) version(name []byte, at int) (end int, keep bool, err error) {
	if string(name) != "schema" {
		return c.copied(name, at)
	}
	return c.schema(&c.versions[len(c.versions)-1], at)
}

// schema records a schema. It returns an error if there is already one in its place.
func (c *outlineBuilder) schema(into *[]byte, at int) (end int, keep bool, err error) {
	if *into != nil || at == len(c.doc) || c.doc[at] != '{' {
		return 0, false, errUnusual
	}
	if end, err = c.lately.skip(c.doc, at); err != nil {
		return 0, false, err
	}
	*into = c.doc[at:end]
	return end, c.mark(*into), nil
}

// mark appends the mark of a schema. It returns false if marking is off and the schema is left out.
func (c *outlineBuilder) mark(schema []byte) (keep bool) {
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

// markOf returns a mark: a schema that contains only a title.
func markOf(i int) string { return fmt.Sprintf(`{"openAPIV3Schema":{"title":"#%d"}}`, i) }

// WithMarks returns the JSON of a stored definition with marks in place of its schemas. The text
// decodes to a definition and can be encoded like any other. restore replaces the marks in encoded
// JSON by the schemas. It returns false if a mark is lost. ok is false if the definition has an
// unusual layout.
func WithMarks(stored []byte) (text []byte, restore func([]byte) ([]byte, bool), ok bool) {
	c := outlineBuilder{doc: stored, stored: true, marking: true}
	if !c.cut() {
		return nil, nil, false
	}
	return c.Text, func(text []byte) ([]byte, bool) { return unmarked(text, c.marked) }, true
}

// unmarked replaces the marks in a text by schemas. Each schema must occur at least once. A mark
// cannot occur within a string, because its quotes would be escaped.
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

// of returns the schema of version i, or nil.
func (o *Outline) of(i int) []byte {
	if o.common != nil {
		return o.common
	}
	return o.versions[i]
}

// Read adds the schemas to a definition in v1 that was decoded from the outline. It returns false
// if the schemas are unusual. The caller then has to read the whole definition.
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
		err := jsontext.Members(text, func(name, value []byte) bool {
			known = string(name) == "openAPIV3Schema" && v.OpenAPIV3Schema == nil
			if known {
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

// Whole returns the JSON of a definition in v1 with its schemas. served is the JSON without them.
func (o *Outline) Whole(served []byte) ([]byte, bool) {
	list, err := jsontext.Find(served, "spec", "versions")
	if err != nil {
		return nil, false
	}
	if len(o.versions) == 0 {
		return served, list == nil || list[0] != '['
	}
	out := make([]byte, 0, len(served)+len(o.common)*len(o.versions)+size(o.versions))
	at := cap(served) - cap(list) // list is a slice of served
	out = append(append(out, served[:at]...), '[')
	n := 0
	err = jsontext.Elements(list, func(i int, version []byte) bool {
		n++
		if i >= len(o.versions) {
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

// appendVersion appends a version in v1 with its schema at the position where Go encodes it. The
// version has a name.
func appendVersion(dst, version, schema []byte) []byte {
	if schema == nil {
		return append(dst, version...)
	}
	at := len(version) - 1
	_ = jsontext.Members(version, func(name, value []byte) bool {
		switch string(name) {
		case "subresources", "additionalPrinterColumns", "selectableFields": // these follow the schema
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
