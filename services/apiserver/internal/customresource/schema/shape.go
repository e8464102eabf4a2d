package schema

import (
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "binnacle/services/apiserver/internal/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/customresource/tape"
)

// MaxShaped is how long a document may become when defaults are filled in, in
// bytes. More is refused with ErrTooLarge, else a small request could fill the
// memory.
const MaxShaped = 6 << 20

// maxUnknown is how many unknown fields of one document are reported.
const maxUnknown = 1000

// ErrTooLarge tells that a document with its defaults is too large.
var ErrTooLarge = errors.New("the object with its defaults is too large")

// ShapeOptions say how a document is shaped.
type ShapeOptions struct {
	// Unknown asks for the paths of unknown and repeated fields.
	Unknown bool
	// DropMalformed lets malformed metadata of embedded resources go, instead
	// of failing: for documents from the store.
	DropMalformed bool
	// Lenient keeps unknown fields and nulls: the definition has
	// preserveUnknownFields.
	Lenient bool
	// Undefaulted is for a document that was converted: it gets no defaults, and keeps its nulls.
	Undefaulted bool
	// KeepNulls keeps nulls that are not allowed and have no default, so that Check reports them.
	KeepNulls bool
}

// Shaped is a document that fits its schema as far as its fields are concerned.
type Shaped struct {
	// Doc is the document that was given when nothing changed.
	Doc     *tape.Doc
	Changed bool
	// Duplicates are the paths of fields that came twice.
	Duplicates []string
	// Unknown are the paths of unknown fields, in the order in which
	// Kubernetes reports them. Those of the resource's own metadata, which
	// come first, are not among them.
	Unknown []string
}

// Shape fills in defaults, prunes unknown fields and nulls that are not
// wanted, and cleans the metadata of embedded resources. It leaves apiVersion,
// kind and metadata of the resource alone. The error is a *field.Error for
// malformed metadata of an embedded resource, ErrTooLarge or
// tape.ErrTooLarge.
func (p *Program) Shape(d *tape.Doc, o ShapeOptions) (Shaped, error) {
	result := Shaped{Doc: d}
	if !d.Clean() {
		if o.Unknown {
			result.Duplicates = d.Duplicates()
		}
		cleaned, err := d.Cleaned()
		if err != nil {
			return Shaped{}, err
		}
		d, result.Doc, result.Changed = cleaned, cleaned, true
	}
	s := shaper{program: p, doc: d, raw: d.Raw(), options: o, parts: everything}
	if o.Lenient {
		s.parts = fills | cleans
	}
	if o.Undefaulted {
		s.parts &^= fills | nulls
	}
	if o.KeepNulls {
		s.parts &^= nulls
	}
	s.resource()
	if s.err != nil {
		return Shaped{}, s.err
	}
	slices.Sort(s.unknown)
	slices.Sort(s.unknownMeta)
	result.Unknown = append(s.unknown, s.unknownMeta...)
	if s.out == nil {
		return result, nil
	}
	shaped, err := tape.Parse(s.finish())
	if err != nil {
		return Shaped{}, err
	}
	result.Doc, result.Changed = shaped, true
	return result, nil
}

// mode is what happens to fields that no schema names.
type mode uint8

const (
	prune    mode = iota // they go
	preserve             // they stay, but what is named is pruned
	keep                 // nothing is pruned
)

// shaper copies a document with changes. As long as there is none, out is nil;
// then out has what stands before copied in the document, changed.
type shaper struct {
	program *Program
	doc     *tape.Doc
	raw     []byte
	options ShapeOptions
	parts   parts
	base    *field.Path // of the document, in errors
	out     []byte
	copied  int
	steps   []step
	unknown []string
	// unknownMeta are the paths of unknown fields in embedded metadata.
	unknownMeta []string
	told        int // bytes of both
	err         error
}

func isMeta(d *tape.Doc, key tape.Ref) bool {
	return d.IsText(key, "metadata") || d.IsText(key, "apiVersion") || d.IsText(key, "kind")
}

// replace puts text in the place of what stands between two offsets.
func (s *shaper) replace(start, end int, text ...[]byte) {
	if s.out == nil {
		s.out = make([]byte, 0, len(s.raw)+len(s.raw)/4+64)
	}
	s.out = append(s.out, s.raw[s.copied:start]...)
	for _, t := range text {
		s.out = append(s.out, t...)
	}
	s.copied = end
	if len(s.out)+len(s.raw)-end > MaxShaped && s.err == nil {
		s.err = ErrTooLarge
	}
}

func (s *shaper) finish() []byte { return append(s.out, s.raw[s.copied:]...) }

// mode is that of the outermost value.
func (s *shaper) mode() mode {
	if s.parts&prunes == 0 {
		return keep
	}
	return prune
}

func (s *shaper) resource() {
	if s.doc.Kind(tape.Root) != tape.Object {
		return
	}
	s.object(root, tape.Root, s.mode(), true)
}

// value shapes a value by the schema at a place.
func (s *shaper) value(at Place, v tape.Ref, m mode) {
	if s.err != nil {
		return
	}
	kind := s.doc.Kind(v)
	if kind != tape.Object && kind != tape.Array {
		return
	}
	if at == nowhere {
		if m == prune {
			s.empty(v)
		}
		return
	}
	if m == prune && s.program.nodes[at].preserve {
		m = preserve
	}
	if kind == tape.Object {
		s.object(at, v, m, false)
		return
	}
	s.array(at, v, m)
}

// empty prunes a value of which no schema knows anything: objects become
// empty.
func (s *shaper) empty(v tape.Ref) {
	d := s.doc
	switch d.Kind(v) {
	case tape.Array:
		s.each(v, func(item tape.Ref) { s.empty(item) })
	case tape.Object:
		if d.Len(v) == 0 {
			return
		}
		for k, end := d.First(v), d.Next(v); k < end; k = d.Next(k + 1) {
			s.report(k, stepValue)
		}
		start, end := d.Span(v)
		s.replace(start+1, end-1)
	}
}

func (s *shaper) each(array tape.Ref, do func(item tape.Ref)) {
	d := s.doc
	n := int32(0)
	for i, end := d.First(array), d.Next(array); i < end && s.err == nil; i = d.Next(i) {
		s.steps = append(s.steps, step{kind: stepIndex, index: n})
		do(i)
		s.steps = s.steps[:len(s.steps)-1]
		n++
	}
}

func (s *shaper) report(key tape.Ref, kind stepKind) {
	if s.options.Unknown && len(s.unknown) < maxUnknown && s.told < maxTold {
		at := unknownName(s.doc, append(s.steps, step{kind: kind, key: key}))
		s.unknown = append(s.unknown, at)
		s.told += len(at)
	}
}

func (s *shaper) array(at Place, v tape.Ref, m mode) {
	n := &s.program.nodes[at]
	if n.items == nowhere {
		if m == prune {
			s.empty(v)
		}
		return
	}
	item := &s.program.nodes[n.items]
	s.each(v, func(i tape.Ref) {
		if s.doc.Kind(i) == tape.Null {
			if !item.nullable && item.fallback != nil && s.parts&fills != 0 {
				start, end := s.doc.Span(i)
				s.replace(start, end, item.fallback)
			}
			return
		}
		s.value(n.items, i, m)
	})
}

// metaPlace is where a schema stands with regard to the metadata of an embedded resource. Kubernetes
// prunes metadata by the fields of ObjectMeta, not by the schema.
type metaPlace uint8

const (
	outside  metaPlace = iota
	metadata           // the schema describes the metadata
	within             // the schema describes a part of the metadata
)

// below returns the place of a schema within s: of the named property, or of items or values.
func (m metaPlace) below(s *v1.JSONSchemaProps, name string) metaPlace {
	switch {
	case m != outside:
		return within
	case s.XEmbeddedResource && name == "metadata":
		return metadata
	}
	return outside
}

// shapeDefault fills in, prunes and cleans a default value by its own schema.
func (p *Program) shapeDefault(at Place, raw []byte, m metaPlace) ([]byte, error) {
	d, err := tape.Parse(raw)
	if err != nil {
		return nil, err
	}
	if !d.Clean() {
		if d, err = d.Cleaned(); err != nil {
			return nil, err
		}
	}
	s := shaper{program: p, doc: d, raw: d.Raw(), options: ShapeOptions{DropMalformed: true}, parts: everything}
	if m == outside {
		s.value(at, tape.Root, prune)
	} else {
		s.parts &^= cleans
		s.value(at, tape.Root, keep)
	}
	if s.err != nil {
		return nil, s.err
	}
	shaped := s.finish()
	if m == metadata {
		shaped, _, err = CleanMetadata(shaped, false, true)
	}
	return shaped, err
}
