package schema

import (
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/json/objectmeta"
	"binnacle/services/apiserver/internal/json/tape"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// MaxNormalized is the maximum size in bytes of a document with its defaults. A larger document is
// rejected with ErrTooLarge. Without the limit, a small request could exhaust memory.
const MaxNormalized = 6 << 20

// maxUnknown is the maximum number of unknown fields that are reported for one document.
const maxUnknown = 1000

// ErrTooLarge reports that a document with its defaults is too large.
var ErrTooLarge = errors.New("the object with its defaults is too large")

// NormalizeOptions controls how Normalize changes a document.
type NormalizeOptions struct {
	// Unknown requests the paths of unknown and repeated fields.
	Unknown bool
	// DropMalformed removes malformed metadata of embedded resources instead of failing. It is for
	// documents from the store.
	DropMalformed bool
	// Lenient keeps unknown fields and nulls, for definitions with preserveUnknownFields.
	Lenient bool
	// Undefaulted is for a converted document, which gets no defaults and keeps its nulls.
	Undefaulted bool
	// KeepNulls keeps nulls that are not allowed and have no default, so that Check reports them.
	KeepNulls bool
}

// NormalizedDoc is the result of Normalize.
type NormalizedDoc struct {
	// Doc is the original document if nothing changed.
	Doc     *tape.Doc
	Changed bool
	// Duplicates holds the paths of repeated fields.
	Duplicates []string
	// Unknown holds the paths of unknown fields in the order in which Kubernetes reports them. It
	// does not contain fields of the resource's own metadata, which are reported first.
	Unknown []string
}

// Normalize fills in defaults, prunes unknown fields and unwanted nulls, and cleans the metadata of
// embedded resources. It does not change apiVersion, kind and metadata of the resource. It returns
// a *field.Error for malformed metadata of an embedded resource, ErrTooLarge or tape.ErrTooLarge.
func (p *Program) Normalize(doc *tape.Doc, normalizeOptions NormalizeOptions) (NormalizedDoc, error) {
	// 1. Remove repeated fields and invalid UTF-8.
	result := NormalizedDoc{Doc: doc}
	if !doc.Clean() {
		if normalizeOptions.Unknown {
			result.Duplicates = doc.Duplicates()
		}
		cleaned, err := doc.Canonicalize()
		if err != nil {
			return NormalizedDoc{}, err
		}
		doc = cleaned
		result.Doc = cleaned
		result.Changed = true
	}

	// 2. Choose the operations, and normalize the document.
	run := normalizer{program: p, doc: doc, raw: doc.Raw(), options: normalizeOptions, operations: allOperations}
	if normalizeOptions.Lenient {
		run.operations = addDefaults | cleanMetadata
	}
	if normalizeOptions.Undefaulted {
		run.operations &^= addDefaults | removeNulls
	}
	if normalizeOptions.KeepNulls {
		run.operations &^= removeNulls
	}
	run.normalizeResource()
	if run.err != nil {
		return NormalizedDoc{}, run.err
	}

	// 3. Return the unknown fields and, if it has changed, the new document.
	slices.Sort(run.unknown)
	slices.Sort(run.unknownMeta)
	result.Unknown = append(run.unknown, run.unknownMeta...)
	if run.out == nil {
		return result, nil
	}
	normalized, err := tape.Parse(run.finish())
	if err != nil {
		return NormalizedDoc{}, err
	}
	result.Doc = normalized
	result.Changed = true
	return result, nil
}

// mode is the treatment of fields that no schema names.
type mode uint8

const (
	prune    mode = iota // removes them
	preserve             // keeps them, but prunes the values of named fields
	keep                 // prunes nothing
)

// normalizer copies a document with changes. It walks the document in order and calls replace for
// each change. out is nil until the first change. Then it holds the changed copy of raw[:copied].
type normalizer struct {
	program    *Program
	doc        *tape.Doc
	raw        []byte
	options    NormalizeOptions
	operations operations
	base       *field.Path // of the document, in errors
	out        []byte
	copied     int
	steps      []step
	unknown    []string
	// unknownMeta holds the paths of unknown fields in embedded metadata.
	unknownMeta  []string
	reportedSize int // size of unknown and unknownMeta in bytes
	err          error
}

// isMeta reports whether a key is one that every resource has.
func isMeta(d *tape.Doc, key tape.Ref) bool {
	return d.IsText(key, "metadata") || d.IsText(key, "apiVersion") || d.IsText(key, "kind")
}

// replace replaces the text between two offsets.
func (s *normalizer) replace(start, end int, text ...[]byte) {
	if s.out == nil {
		s.out = make([]byte, 0, len(s.raw)+len(s.raw)/4+64)
	}
	s.out = append(s.out, s.raw[s.copied:start]...)
	for _, t := range text {
		s.out = append(s.out, t...)
	}
	s.copied = end
	if len(s.out)+len(s.raw)-end > MaxNormalized && s.err == nil {
		s.err = ErrTooLarge
	}
}

// finish returns the changed document.
func (s *normalizer) finish() []byte { return append(s.out, s.raw[s.copied:]...) }

func (s *normalizer) rootMode() mode {
	if s.operations&pruneUnknown == 0 {
		return keep
	}
	return prune
}

// normalizeResource normalizes the document as a resource.
func (s *normalizer) normalizeResource() {
	if s.doc.Kind(tape.Root) != tape.Object {
		return
	}
	s.normalizeObject(Root, tape.Root, s.rootMode(), true)
}

// normalizeValue normalizes a value by a schema, which may be NoNode.
func (s *normalizer) normalizeValue(at NodeIndex, value tape.Ref, valueMode mode) {
	if s.err != nil {
		return
	}
	kind := s.doc.Kind(value)
	if kind != tape.Object && kind != tape.Array {
		return
	}
	if at == NoNode {
		if valueMode == prune {
			s.pruneContents(value)
		}
		return
	}
	if valueMode == prune && s.program.nodes[at].preservesUnknown {
		valueMode = preserve
	}
	if kind == tape.Object {
		s.normalizeObject(at, value, valueMode, false)
		return
	}
	s.normalizeArray(at, value, valueMode)
}

// pruneContents prunes a value that no schema describes: it removes the members of objects, also
// within arrays.
func (s *normalizer) pruneContents(value tape.Ref) {
	doc := s.doc
	switch doc.Kind(value) {
	case tape.Array:
		s.forEachItem(value, func(item tape.Ref) { s.pruneContents(item) })
	case tape.Object:
		if doc.Len(value) == 0 {
			return
		}
		for k, end := doc.First(value), doc.Next(value); k < end; k = doc.Next(k + 1) {
			s.reportUnknown(k, stepValue)
		}
		start, end := doc.Span(value)
		s.replace(start+1, end-1)
	}
}

// forEachItem calls do for the items of an array while steps includes the index of the item.
func (s *normalizer) forEachItem(array tape.Ref, do func(item tape.Ref)) {
	d := s.doc
	n := int32(0)
	for i, end := d.First(array), d.Next(array); i < end && s.err == nil; i = d.Next(i) {
		s.steps = append(s.steps, step{kind: stepIndex, index: n})
		do(i)
		s.steps = s.steps[:len(s.steps)-1]
		n++
	}
}

// reportUnknown adds the path of an unknown field.
func (s *normalizer) reportUnknown(key tape.Ref, kind stepKind) {
	if s.options.Unknown && len(s.unknown) < maxUnknown && s.reportedSize < maxErrorBytes {
		at := strings.TrimPrefix(bodyPath(s.doc, append(s.steps, step{kind: kind, key: key})), ".")
		s.unknown = append(s.unknown, at)
		s.reportedSize += len(at)
	}
}

// normalizeArray normalizes the items of an array.
func (s *normalizer) normalizeArray(at NodeIndex, value tape.Ref, listMode mode) {
	schemaNode := &s.program.nodes[at]
	if schemaNode.items == NoNode {
		if listMode == prune {
			s.pruneContents(value)
		}
		return
	}
	item := &s.program.nodes[schemaNode.items]
	s.forEachItem(value, func(i tape.Ref) {
		if s.doc.Kind(i) == tape.Null {
			if !item.nullable && item.defaultValue != nil && s.operations&addDefaults != 0 {
				start, end := s.doc.Span(i)
				s.replace(start, end, item.defaultValue)
			}
			return
		}
		s.normalizeValue(schemaNode.items, i, listMode)
	})
}

// metadataPosition tells where a schema stands relative to the metadata of an embedded resource.
// Kubernetes prunes metadata by the fields of ObjectMeta, not by the schema.
type metadataPosition uint8

const (
	outside  metadataPosition = iota
	metadata                  // the schema describes the metadata
	within                    // the schema describes a part of the metadata
)

// child returns the position of a schema within props: that of the named property, or of items or
// values.
func (m metadataPosition) child(props *v1.JSONSchemaProps, name string) metadataPosition {
	switch {
	case m != outside:
		return within
	case props.XEmbeddedResource && name == "metadata":
		return metadata
	}
	return outside
}

// normalizeDefault fills in, prunes and cleans a default value by its own schema.
func (p *Program) normalizeDefault(at NodeIndex, raw []byte, position metadataPosition) ([]byte, error) {
	doc, err := tape.Parse(raw)
	if err != nil {
		return nil, err
	}
	if !doc.Clean() {
		if doc, err = doc.Canonicalize(); err != nil {
			return nil, err
		}
	}
	run := normalizer{program: p, doc: doc, raw: doc.Raw(), options: NormalizeOptions{DropMalformed: true}, operations: allOperations}
	if position == outside {
		run.normalizeValue(at, tape.Root, prune)
	} else {
		run.operations &^= cleanMetadata
		run.normalizeValue(at, tape.Root, keep)
	}
	if run.err != nil {
		return nil, run.err
	}
	normalized := run.finish()
	if position == metadata {
		normalized, _, err = objectmeta.Clean(normalized, false, true)
	}
	return normalized, err
}
