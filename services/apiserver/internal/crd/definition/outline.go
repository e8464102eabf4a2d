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

// Summary is the JSON of a definition without its schemas. Schemas make up most of the JSON, and
// most readers of a definition do not need them.
type Summary struct {
	// Text is the JSON without schemas. It decodes like the full definition.
	Text []byte
	// common is spec.validation of a stored definition, the schema of all versions, or nil.
	// versions holds the schema of each version, nil for a version without one.
	common   []byte
	versions [][]byte
}

// OutlineOf returns the Summary of a stored definition, which is in v1beta1. It returns false if
// the layout of the JSON is unusual, such as with repeated or escaped names. The caller then has to
// decode the full definition.
func OutlineOf(stored []byte) (Summary, bool) {
	b := summaryBuilder{doc: stored, stored: true}
	ok := b.scan()
	return b.Summary, ok
}

// OutlineOfServed returns the Summary of a definition in v1, like OutlineOf.
func OutlineOfServed(data []byte) (Summary, bool) {
	b := summaryBuilder{doc: data}
	ok := b.scan()
	return b.Summary, ok
}

// Outliner removes the schemas of successive definitions. Most changes of a definition leave its
// schema unchanged, so the Outliner caches recent schemas and skips them without scanning. It is
// safe for concurrent use.
type Outliner struct {
	recent [4]atomic.Pointer[[]byte]
	next   atomic.Uint32
}

// WithoutSchemas returns the JSON of a stored definition without schemas and managed fields. It
// returns a definition with an unusual layout unchanged.
func (o *Outliner) WithoutSchemas(stored []byte) []byte {
	b := summaryBuilder{doc: stored, stored: true, omitManagedFields: true, cache: o}
	if !b.scan() {
		return stored
	}
	return b.Text
}

// skipSchema returns the position after the schema that starts at pos. A nil Outliner caches
// nothing.
func (o *Outliner) skipSchema(doc []byte, pos int) (end int, err error) {
	if o == nil {
		return jsontext.Skip(doc, pos)
	}
	for i := range o.recent {
		// A text that starts with a complete object has that object at its start.
		if seen := o.recent[i].Load(); seen != nil && bytes.HasPrefix(doc[pos:], *seen) {
			return pos + len(*seen), nil
		}
	}
	if end, err = jsontext.Skip(doc, pos); err == nil {
		seen := doc[pos:end]
		o.recent[o.next.Add(1)%uint32(len(o.recent))].Store(&seen)
	}
	return end, err
}

// summaryBuilder copies a definition without its schemas.
type summaryBuilder struct {
	Summary
	doc               []byte
	stored            bool      // doc is in v1beta1, not in v1
	cache             *Outliner // of recent schemas, or nil
	omitManagedFields bool
	// insertPlaceholders inserts placeholders in place of schemas. The placeholder with index i
	// stands for replaced[i].
	insertPlaceholders bool
	replaced           [][]byte
}

// errUnusual reports that a definition has an unusual layout.
var errUnusual = errors.New("unusual definition")

// scan copies the definition into Text and reports whether its layout is usual.
func (b *summaryBuilder) scan() bool {
	if len(b.doc) == 0 || b.doc[0] != '{' {
		return false
	}
	_, _, err := b.copyMembers(0, b.copyRootMember)
	return err == nil
}

// memberFunc appends the value of a member at a position of the document, or returns false for keep
// to omit the member. It returns the position after the value.
type memberFunc func(name []byte, pos int) (end int, keep bool, err error)

// copyMembers copies an object and calls copyMember for each of its members. It copies a value that
// is no object unchanged. The layout of an object with escaped names is unusual.
func (b *summaryBuilder) copyMembers(pos int, copyMember memberFunc) (end int, keep bool, err error) {
	if pos == len(b.doc) || b.doc[pos] != '{' {
		return b.copyValue(nil, pos)
	}
	b.Text = append(b.Text, '{')
	first := true
	end, err = jsontext.MembersAt(b.doc, pos, func(name []byte, pos int) (int, bool, error) {
		start := len(b.Text)
		if !first {
			b.Text = append(b.Text, ',')
		}
		b.Text = append(append(append(b.Text, '"'), name...), '"', ':')
		if bytes.IndexByte(name, '\\') >= 0 {
			return 0, false, errUnusual
		}
		end, keep, err := copyMember(name, pos)
		if !keep {
			b.Text = b.Text[:start]
		}
		first = first && !keep
		return end, true, err
	})
	b.Text = append(b.Text, '}')
	return end, true, err
}

// copyValue appends a value unchanged.
func (b *summaryBuilder) copyValue(_ []byte, pos int) (end int, keep bool, err error) {
	if end, err = jsontext.Skip(b.doc, pos); err == nil {
		b.Text = append(b.Text, b.doc[pos:end]...)
	}
	return end, true, err
}

// copyRootMember is the memberFunc of the definition itself.
func (b *summaryBuilder) copyRootMember(name []byte, pos int) (end int, keep bool, err error) {
	switch string(name) {
	case "metadata":
		if b.omitManagedFields {
			return b.copyMembers(pos, b.copyMetadataMember)
		}
	case "spec":
		if b.versions != nil || b.common != nil {
			return 0, false, errUnusual // repeated
		}
		return b.copyMembers(pos, b.copySpecMember)
	}
	return b.copyValue(name, pos)
}

// copyMetadataMember is the memberFunc of metadata.
func (b *summaryBuilder) copyMetadataMember(name []byte, pos int) (end int, keep bool, err error) {
	if string(name) == "managedFields" {
		end, err = jsontext.Skip(b.doc, pos)
		return end, false, err
	}
	return b.copyValue(name, pos)
}

// copySpecMember is the memberFunc of the spec.
func (b *summaryBuilder) copySpecMember(name []byte, pos int) (end int, keep bool, err error) {
	switch {
	case string(name) == "validation" && b.stored:
		return b.extractSchema(&b.common, pos)
	case string(name) == "versions" && pos < len(b.doc) && b.doc[pos] == '[':
		if b.versions != nil {
			return 0, false, errUnusual
		}
		b.versions = [][]byte{}
		end, err = b.copyVersions(pos)
		return end, true, err
	}
	return b.copyValue(name, pos)
}

// copyVersions copies the list of versions.
func (b *summaryBuilder) copyVersions(pos int) (end int, err error) {
	b.Text = append(b.Text, '[')
	end, err = jsontext.ElementsAt(b.doc, pos, func(i, pos int) (int, bool, error) {
		if i > 0 {
			b.Text = append(b.Text, ',')
		}
		b.versions = append(b.versions, nil)
		if pos == len(b.doc) || b.doc[pos] != '{' {
			return 0, false, errUnusual
		}
		return b.copyMembers(pos, b.copyVersionMember)
	})
	b.Text = append(b.Text, ']')
	return end, err
}

// copyVersionMember is the memberFunc of a version in the spec.
func (b *summaryBuilder) copyVersionMember(name []byte, pos int) (end int, keep bool, err error) {
	if string(name) != "schema" {
		return b.copyValue(name, pos)
	}
	return b.extractSchema(&b.versions[len(b.versions)-1], pos)
}

// extractSchema sets target to the schema at pos, and omits the schema or appends its placeholder.
// It returns an error if target is already set.
func (b *summaryBuilder) extractSchema(target *[]byte, pos int) (end int, keep bool, err error) {
	if *target != nil || pos == len(b.doc) || b.doc[pos] != '{' {
		return 0, false, errUnusual
	}
	if end, err = b.cache.skipSchema(b.doc, pos); err != nil {
		return 0, false, err
	}
	schema := b.doc[pos:end]
	*target = schema
	if !b.insertPlaceholders {
		return end, false, nil
	}
	i := slices.IndexFunc(b.replaced, func(other []byte) bool { return bytes.Equal(other, schema) })
	if i < 0 {
		i = len(b.replaced)
		b.replaced = append(b.replaced, schema)
	}
	b.Text = append(b.Text, placeholder(i)...)
	return end, true, nil
}

// placeholder returns a schema that contains only a title with an index.
func placeholder(i int) string { return fmt.Sprintf(`{"openAPIV3Schema":{"title":"#%d"}}`, i) }

// WithPlaceholders returns the JSON of a stored definition with placeholders in place of its
// schemas. The text decodes to a definition that can be changed and encoded. restore replaces the
// placeholders in the encoded JSON by the schemas. It returns false if a placeholder is missing. ok
// is false if the definition has an unusual layout.
func WithPlaceholders(stored []byte) (data []byte, restore func([]byte) ([]byte, bool), ok bool) {
	b := summaryBuilder{doc: stored, stored: true, insertPlaceholders: true}
	if !b.scan() {
		return nil, nil, false
	}
	return b.Text, func(data []byte) ([]byte, bool) { return restoreSchemas(data, b.replaced) }, true
}

// restoreSchemas replaces the placeholders in a text by schemas. It returns false unless each
// schema occurs at least once. A placeholder cannot occur within a JSON string, where its quotes
// would be escaped.
func restoreSchemas(data []byte, schemas [][]byte) ([]byte, bool) {
	before, after, _ := strings.Cut(placeholder(0), "0")
	out := make([]byte, 0, len(data)+totalSize(schemas))
	restored := make([]bool, len(schemas))
	for {
		head, rest, found := bytes.Cut(data, []byte(before))
		out = append(out, head...)
		if !found {
			return out, !slices.Contains(restored, false)
		}
		number, rest, _ := bytes.Cut(rest, []byte(after))
		i, err := strconv.Atoi(string(number))
		if err != nil || i < 0 || i >= len(schemas) {
			return nil, false
		}
		out, data, restored[i] = append(out, schemas[i]...), rest, true
	}
}

// schema returns the schema of version i, or nil.
func (s *Summary) schema(i int) []byte {
	if s.common != nil {
		return s.common
	}
	return s.versions[i]
}

// AddSchemas adds the schemas to a definition in v1 that was decoded from the summary. It returns
// false if the layout of a schema is unusual. The caller then has to decode the full definition.
func (s *Summary) AddSchemas(definition *v1.CustomResourceDefinition) bool {
	if len(s.versions) != len(definition.Spec.Versions) {
		return false
	}
	for i := range definition.Spec.Versions {
		data := s.schema(i)
		if data == nil {
			continue
		}
		validation := &v1.CustomResourceValidation{}
		usual := true
		err := jsontext.Members(data, func(name, value []byte) bool {
			usual = string(name) == "openAPIV3Schema" && validation.OpenAPIV3Schema == nil
			if usual {
				validation.OpenAPIV3Schema, usual = v1.ReadPlainSchema(value)
			}
			return usual
		})
		if err != nil || !usual {
			return false
		}
		definition.Spec.Versions[i].Schema = validation
	}
	return true
}

// InsertSchemas returns the JSON of a definition in v1 with its schemas. served is the JSON without
// them. It returns false if the versions of served are not those of the summary.
func (s *Summary) InsertSchemas(served []byte) ([]byte, bool) {
	list, err := jsontext.Find(served, "spec", "versions")
	if err != nil {
		return nil, false
	}
	if len(s.versions) == 0 {
		return served, list == nil || list[0] != '['
	}
	out := make([]byte, 0, len(served)+len(s.common)*len(s.versions)+totalSize(s.versions))
	pos := cap(served) - cap(list) // list is a slice of served
	out = append(append(out, served[:pos]...), '[')
	count := 0
	err = jsontext.Elements(list, func(i int, version []byte) bool {
		count++
		if i >= len(s.versions) {
			return false
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = appendVersion(out, version, s.schema(i))
		return true
	})
	if err != nil || count != len(s.versions) {
		return nil, false
	}
	return append(append(out, ']'), served[pos+len(list):]...), true
}

// totalSize returns an upper bound of the bytes that the schemas add to a text.
func totalSize(parts [][]byte) (n int) {
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
	pos := len(version) - 1
	_ = jsontext.Members(version, func(name, value []byte) bool {
		switch string(name) {
		case "subresources", "additionalPrinterColumns", "selectableFields": // these follow the schema
			pos = cap(version) - cap(name) - 1
			return false
		}
		return true
	})
	dst = append(dst, version[:pos]...)
	if pos == len(version)-1 {
		return append(append(append(dst, `,"schema":`...), schema...), '}')
	}
	return append(append(append(append(dst, `"schema":`...), schema...), ','), version[pos:]...)
}
