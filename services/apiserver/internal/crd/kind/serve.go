package kind

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"binnacle/services/apiserver/internal/crd/schema"
	"binnacle/services/apiserver/internal/json/jsontext"
	"binnacle/services/apiserver/internal/json/objectmeta"
	"binnacle/services/apiserver/internal/json/tape"
	"binnacle/services/apiserver/internal/registry"
)

// errNoObject rejects a document that is not a JSON object.
var errNoObject = errors.New("it is not a JSON object")

// normalize implements registry.Document.
func (s *versionSchema) normalize(raw []byte, documentOptions registry.DocumentOptions) (out registry.ServedDocument, err error) {
	program, err := s.program.Get()
	if err != nil {
		return out, err
	}

	// 1. Parse the document.
	doc, err := tape.Parse(raw)
	if err != nil {
		return out, err
	}
	defer func() { doc.Release() }() // of the document to which cleanMetadata may set doc
	if doc.Kind(tape.Root) != tape.Object {
		return out, errNoObject
	}
	if documentOptions.ReportUnknown {
		out.Duplicates = doc.Duplicates() // cleaning removes them
	}

	// 2. Clean its metadata.
	if doc, out.Unknown, err = cleanMetadata(doc, documentOptions.ReportUnknown, documentOptions.DropMalformedMetadata); err != nil {
		return out, err
	}

	// 3. Normalize it according to the schema of its version.
	if documentOptions.OtherVersion {
		bodyVersion := s.schemaOf(doc)
		if bodyVersion == nil {
			out.Doc = doc.Raw()
			return out, nil
		}
		if program, err = bodyVersion.program.Get(); err != nil {
			return out, err
		}
	}
	normalized, err := program.Normalize(doc, schema.NormalizeOptions{
		Unknown:   documentOptions.ReportUnknown,
		Lenient:   s.preserveUnknown,
		KeepNulls: documentOptions.KeepNulls,
	})
	if err != nil {
		return out, err
	}
	out.Unknown = append(out.Unknown, normalized.Unknown...)
	out.Doc = normalized.Doc.Raw()
	if normalized.Doc != doc {
		normalized.Doc.Release()
	}
	return out, nil
}

// cleanMetadata converts the metadata of a document to its stored form. It returns doc if nothing
// changes. Otherwise it releases doc and returns a new document.
func cleanMetadata(doc *tape.Doc, wantUnknown, dropMalformed bool) (*tape.Doc, []string, error) {
	metadata := doc.Find(tape.Root, "metadata")
	if metadata == tape.None {
		return doc, nil, nil
	}
	clean, unknown, err := objectmeta.Clean(doc.Text(metadata), wantUnknown, dropMalformed)
	if err != nil {
		return doc, nil, err
	}
	var paths []string
	for _, u := range unknown {
		paths = append(paths, "metadata."+strings.TrimPrefix(u, "."))
	}
	start, end := doc.Span(metadata)
	raw := doc.Raw()
	if string(clean) == string(raw[start:end]) {
		return doc, paths, nil
	}
	merged := make([]byte, 0, len(raw)+len(clean))
	merged = append(append(append(merged, raw[:start]...), clean...), raw[end:]...)
	next, err := tape.Parse(merged)
	if err != nil {
		return doc, nil, err
	}
	doc.Release()
	return next, paths, nil
}

// parseStored reads a stored document, and defaults, prunes and cleans it by the schema of its own
// version. It removes malformed metadata of embedded resources. It returns the version.
func (f *family) parseStored(raw []byte) (*tape.Doc, string, error) {
	doc, err := tape.Parse(raw)
	if err != nil {
		return nil, "", err
	}
	if doc.Kind(tape.Root) != tape.Object {
		doc.Release()
		return nil, "", errNoObject
	}
	if doc, err = objectmeta.Repair(doc); err != nil {
		return nil, "", err
	}
	version := versionOf(doc)
	compiled := f.versions[version]
	if compiled == nil { // the version no longer exists
		return doc, version, nil
	}
	doc, err = compiled.shapeStored(doc, false)
	return doc, version, err
}

// versionOf returns the version in a document's apiVersion.
func versionOf(doc *tape.Doc) string {
	value := doc.Find(tape.Root, "apiVersion")
	if value == tape.None || doc.Kind(value) != tape.String {
		return ""
	}
	name := doc.String(value)
	return strings.Clone(name[strings.LastIndexByte(name, '/')+1:])
}

// schemaOf returns the schema of a document's version, or nil if the document has another kind or a
// version that the definition lacks.
func (f *family) schemaOf(doc *tape.Doc) *versionSchema {
	kind, apiVersion := doc.Find(tape.Root, "kind"), doc.Find(tape.Root, "apiVersion")
	isString := func(v tape.Ref) bool { return v != tape.None && doc.Kind(v) == tape.String }
	if !isString(kind) || !isString(apiVersion) {
		return nil
	}
	version, ok := strings.CutPrefix(doc.String(apiVersion), f.group+"/")
	if !ok || doc.String(kind) != f.kind {
		return nil
	}
	return f.versions[version]
}

// shapeStored returns a stored document in its served form: with defaults, and without fields that
// the schema does not have. A converted document gets no defaults. shapeStored takes ownership of
// doc. If defaults that were declared later make the document too large, it gets none, so that it can
// be read and deleted.
func (s *versionSchema) shapeStored(doc *tape.Doc, converted bool) (*tape.Doc, error) {
	program, err := s.program.Get()
	if err != nil {
		doc.Release()
		return nil, err
	}
	o := schema.NormalizeOptions{DropMalformed: true, Lenient: s.preserveUnknown, Undefaulted: converted}
	out, err := program.Normalize(doc, o)
	if errors.Is(err, schema.ErrTooLarge) && !o.Undefaulted {
		o.Undefaulted = true
		out, err = program.Normalize(doc, o)
	}
	if err != nil {
		doc.Release()
		return nil, fmt.Errorf("stored object: %w", err)
	}
	if out.Doc != doc {
		doc.Release()
	}
	return out.Doc, nil
}

// shapeConverted returns the served form of a document that was converted to this version.
func (s *versionSchema) shapeConverted(raw []byte) (*tape.Doc, error) {
	doc, err := tape.Parse(raw)
	if err != nil {
		return nil, err
	}
	return s.shapeStored(doc, true)
}

// textOf returns the text of a document and releases the document.
func textOf(doc *tape.Doc, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer doc.Release()
	return doc.Raw(), nil
}

// parseServed implements registry.Document.
func (s *versionSchema) parseServed(ctx context.Context, raw []byte) (*tape.Doc, error) {
	doc, version, err := s.parseStored(raw)
	if err != nil || version == s.version {
		return doc, err
	}
	data, _ := textOf(doc, nil)
	converted, err := s.convertDocuments(ctx, [][]byte{data}, s.version)
	if err != nil {
		return nil, err
	}
	return s.shapeConverted(converted[0])
}

// toServed implements registry.Document.
func (s *versionSchema) toServed(ctx context.Context, stored [][]byte) ([][]byte, error) {
	out := make([][]byte, len(stored))
	var unconverted [][]byte // documents of other versions
	var indexes []int        // of these documents in out
	for i, raw := range stored {
		d, version, err := s.parseStored(raw)
		if out[i], err = textOf(d, err); err != nil {
			return nil, err
		}
		if version != s.version {
			unconverted = append(unconverted, out[i])
			indexes = append(indexes, i)
		}
	}
	if len(unconverted) == 0 {
		return out, nil
	}
	converted, err := s.convertDocuments(ctx, unconverted, s.version)
	if err != nil {
		return nil, err
	}
	for n, i := range indexes {
		if out[i], err = textOf(s.shapeConverted(converted[n])); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// toStored implements registry.Document.
func (s *versionSchema) toStored(ctx context.Context, served []byte) ([]byte, error) {
	if s.version == s.storageVersion {
		return served, nil
	}
	converted, err := s.convertDocuments(ctx, [][]byte{served}, s.storageVersion)
	if err != nil {
		return nil, err
	}
	if target := s.versions[s.storageVersion]; target != nil {
		return textOf(target.shapeConverted(converted[0]))
	}
	return converted[0], nil
}

// convertDocuments implements registry.Document. It converts documents of any version to the given
// one.
func (f *family) convertDocuments(ctx context.Context, docs [][]byte, version string) ([][]byte, error) {
	if f.converter != nil {
		return f.converter.Convert(ctx, docs, version)
	}
	out := make([][]byte, len(docs))
	for i, raw := range docs {
		var err error
		if out[i], err = withAPIVersion(raw, f.group+"/"+version); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// withAPIVersion returns a document with another apiVersion.
func withAPIVersion(raw []byte, apiVersion string) ([]byte, error) {
	doc, err := tape.Parse(raw)
	if err != nil {
		return nil, err
	}
	defer doc.Release()
	value := doc.Find(tape.Root, "apiVersion")
	if value == tape.None {
		var all map[string]json.RawMessage
		if err := json.Unmarshal(raw, &all); err != nil {
			return nil, err
		}
		all["apiVersion"] = jsontext.AppendString(nil, apiVersion)
		return json.Marshal(all)
	}
	start, end := doc.Span(value)
	out := make([]byte, 0, len(raw)+len(apiVersion))
	return append(jsontext.AppendString(append(out, raw[:start]...), apiVersion), raw[end:]...), nil
}
