package schema

import (
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/customresource/tape"
)

// MaxShaped is how long a document may become when defaults are filled in, in
// bytes. More is refused with ErrTooLarge, else a small request could fill the
// memory.
const MaxShaped = 16 << 20

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
	// Converted marks a document that was converted: it is not defaulted.
	Converted bool
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
	if o.Converted {
		s.parts &^= fills | nulls
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
	if s.options.Unknown && len(s.unknown) < maxUnknown {
		s.unknown = append(s.unknown, unknownName(s.doc, append(s.steps, step{kind: kind, key: key})))
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

// parts are what a shaper does.
type parts uint8

const (
	prunes     parts = 1 << iota
	fills            // defaults
	nulls            // takes out nulls that are not wanted
	cleans           // embedded metadata
	everything = prunes | fills | nulls | cleans
)

// member is what becomes of a member of an object.
type member uint8

const (
	stays member = iota
	goes
	isFilled // a null gives way to the default
)

func (s *shaper) object(at Place, v tape.Ref, m mode, resource bool) {
	n := &s.program.nodes[at]
	d := s.doc
	if m == prune && n.preserve {
		m = preserve
	}
	var seen marks
	filling := n.fills && s.parts&fills != 0
	if filling {
		seen = newMarks(len(n.props))
	}
	start, end := d.Span(v)
	last := start + 1 // where the last member ended, or the object began
	kept, next := 0, 0
	for k, stop := d.First(v), d.Next(v); k < stop && s.err == nil; k = d.Next(k + 1) {
		i := n.find(d, k, next)
		sub := n.values
		if i >= 0 {
			next = i + 1
			sub = n.props[i].at
			seen.set(i)
		}
		valueStart, valueEnd := d.Span(k + 1)
		meta := (resource || n.embedded) && isMeta(d, k)
		if meta && resource {
			kept++
			last = valueEnd
			continue
		}
		switch s.fate(n, sub, i >= 0, meta, k, m) {
		case goes:
			s.drop(k, last, kept, end)
		case isFilled:
			s.replace(valueStart, valueEnd, s.program.nodes[sub].fallback)
			kept++
		case stays:
			kept++
			s.member(n, sub, i >= 0, meta, k, m)
		}
		last = valueEnd
	}
	if filling {
		s.fill(n, &seen, last, end-1, kept)
	}
}

// fate decides on a member. sub is the place of its schema, named whether the
// schema names the property.
func (s *shaper) fate(n *node, sub Place, named, meta bool, key tape.Ref, m mode) member {
	if m == prune && !named && !meta && n.additional == unsaid {
		s.report(key, stepValue)
		return goes
	}
	if sub != nowhere && s.doc.Kind(key+1) == tape.Null {
		child := &s.program.nodes[sub]
		switch {
		case child.nullable:
		case child.fallback != nil && s.parts&fills != 0:
			return isFilled
		case child.fallback == nil && s.parts&nulls != 0:
			return goes
		}
	}
	if meta && s.parts&cleans != 0 && s.badType(key) {
		return goes
	}
	return stays
}

// drop takes a member out together with a comma: the one before it if
// something is kept before it, else the one after it.
func (s *shaper) drop(key tape.Ref, last, kept, end int) {
	keyStart, _ := s.doc.Span(key)
	_, valueEnd := s.doc.Span(key + 1)
	if kept > 0 {
		s.replace(max(last, s.copied), valueEnd)
		return
	}
	next := s.doc.Next(key + 1)
	stop := end - 1
	if int(next) < s.doc.Entries() {
		if start, _ := s.doc.Span(next); start < stop {
			stop = start
		}
	}
	s.replace(max(keyStart, s.copied), stop)
}

// member shapes the value of a member that stays.
func (s *shaper) member(n *node, sub Place, named, meta bool, key tape.Ref, m mode) {
	kind := stepValue
	if named {
		kind = stepProp
	}
	s.steps = append(s.steps, step{kind: kind, key: key})
	switch {
	case meta && s.parts&cleans != 0:
		s.embeddedMeta(sub, key)
	case meta:
	case !named && n.additional == unsaid:
		// Nothing knows it, and it stays.
	case m == keep:
		s.value(sub, key+1, keep)
	default:
		s.value(sub, key+1, prune)
	}
	s.steps = s.steps[:len(s.steps)-1]
}

// fill appends the defaults of properties that are missing.
func (s *shaper) fill(n *node, seen *marks, last, brace, kept int) {
	for i := range n.props {
		fallback := s.program.nodes[n.props[i].at].fallback
		if fallback == nil || seen.has(i) {
			continue
		}
		at := brace
		if kept > 0 && last > s.copied {
			at = last
		} else if kept > 0 && s.copied >= last {
			at = s.copied
		}
		var comma []byte
		if kept > 0 {
			comma = []byte{','}
		}
		kept++
		s.replace(at, at, comma, tape.AppendString(nil, n.props[i].name), []byte{':'}, fallback)
		last = at
	}
}

// shapeDefault fills in, prunes and cleans a default value by its own schema.
func (p *Program) shapeDefault(at Place, raw []byte) ([]byte, error) {
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
	s.value(at, tape.Root, prune)
	if s.err != nil {
		return nil, s.err
	}
	return s.finish(), nil
}
