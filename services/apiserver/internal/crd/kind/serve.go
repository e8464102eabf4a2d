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
	d, err := tape.Parse(raw)
	if err != nil {
		return out, err
	}
	defer func() { d.Release() }() // of the document to which cleanMetadata may set d
	if d.Kind(tape.Root) != tape.Object {
		return out, errNoObject
	}
	if documentOptions.ReportUnknown {
		out.Duplicates = d.Duplicates() // cleaning removes them
	}

	// 2. Clean its metadata.
	if d, out.Unknown, err = cleanMetadata(d, documentOptions.ReportUnknown, documentOptions.DropMalformedMetadata); err != nil {
		return out, err
	}

	// 3. Normalize it according to the schema of its version.
	if documentOptions.OtherVersion {
		other := s.schemaOf(d)
		if other == nil {
			out.Doc = d.Raw()
			return out, nil
		}
		if program, err = other.program.Get(); err != nil {
			return out, err
		}
	}
	normalized, err := program.Normalize(d, schema.NormalizeOptions{
		Unknown:   documentOptions.ReportUnknown,
		Lenient:   s.preserveUnknown,
		KeepNulls: documentOptions.KeepNulls,
	})
	if err != nil {
		return out, err
	}
	out.Unknown = append(out.Unknown, normalized.Unknown...)
	out.Doc = normalized.Doc.Raw()
	if normalized.Doc != d {
		normalized.Doc.Release()
	}
	return out, nil
}

// cleanMetadata converts the metadata of a document to its stored form. It returns d if nothing
// changes. Otherwise it releases d and returns a new document.
func cleanMetadata(d *tape.Doc, wantUnknown, dropMalformed bool) (*tape.Doc, []string, error) {
	m := d.Find(tape.Root, "metadata")
	if m == tape.None {
		return d, nil, nil
	}
	clean, unknown, err := objectmeta.Clean(d.Text(m), wantUnknown, dropMalformed)
	if err != nil {
		return d, nil, err
	}
	var paths []string
	for _, u := range unknown {
		paths = append(paths, "metadata."+strings.TrimPrefix(u, "."))
	}
	start, end := d.Span(m)
	raw := d.Raw()
	if string(clean) == string(raw[start:end]) {
		return d, paths, nil
	}
	all := make([]byte, 0, len(raw)+len(clean))
	all = append(append(append(all, raw[:start]...), clean...), raw[end:]...)
	next, err := tape.Parse(all)
	if err != nil {
		return d, nil, err
	}
	d.Release()
	return next, paths, nil
}

// parseStored reads a stored document, and defaults, prunes and cleans it by the schema of its own
// version. It removes malformed metadata of embedded resources. It returns the version.
func (f *family) parseStored(raw []byte) (*tape.Doc, string, error) {
	d, err := tape.Parse(raw)
	if err != nil {
		return nil, "", err
	}
	if d.Kind(tape.Root) != tape.Object {
		d.Release()
		return nil, "", errNoObject
	}
	if d, err = objectmeta.Repair(d); err != nil {
		return nil, "", err
	}
	version := versionOf(d)
	s := f.versions[version]
	if s == nil { // the version no longer exists
		return d, version, nil
	}
	d, err = s.shapeStored(d, false)
	return d, version, err
}

// versionOf returns the version in a document's apiVersion.
func versionOf(d *tape.Doc) string {
	v := d.Find(tape.Root, "apiVersion")
	if v == tape.None || d.Kind(v) != tape.String {
		return ""
	}
	name := d.String(v)
	return strings.Clone(name[strings.LastIndexByte(name, '/')+1:])
}

// schemaOf returns the schema of a document's version, or nil if the document has another kind or a
// version that the definition lacks.
func (f *family) schemaOf(d *tape.Doc) *versionSchema {
	kind, apiVersion := d.Find(tape.Root, "kind"), d.Find(tape.Root, "apiVersion")
	isString := func(v tape.Ref) bool { return v != tape.None && d.Kind(v) == tape.String }
	if !isString(kind) || !isString(apiVersion) {
		return nil
	}
	version, ok := strings.CutPrefix(d.String(apiVersion), f.group+"/")
	if !ok || d.String(kind) != f.kind {
		return nil
	}
	return f.versions[version]
}

// shapeStored returns a stored document in its served form: with defaults, and without fields that
// the schema does not have. A converted document gets no defaults. shapeStored takes ownership of
// d. If defaults that were declared later make the document too large, it gets none, so that it can
// be read and deleted.
func (s *versionSchema) shapeStored(d *tape.Doc, converted bool) (*tape.Doc, error) {
	p, err := s.program.Get()
	if err != nil {
		d.Release()
		return nil, err
	}
	o := schema.NormalizeOptions{DropMalformed: true, Lenient: s.preserveUnknown, Undefaulted: converted}
	out, err := p.Normalize(d, o)
	if errors.Is(err, schema.ErrTooLarge) && !o.Undefaulted {
		o.Undefaulted = true
		out, err = p.Normalize(d, o)
	}
	if err != nil {
		d.Release()
		return nil, fmt.Errorf("stored object: %w", err)
	}
	if out.Doc != d {
		d.Release()
	}
	return out.Doc, nil
}

// shapeConverted returns the served form of a document that was converted to this version.
func (s *versionSchema) shapeConverted(raw []byte) (*tape.Doc, error) {
	d, err := tape.Parse(raw)
	if err != nil {
		return nil, err
	}
	return s.shapeStored(d, true)
}

// textOf returns the text of a document and releases the document.
func textOf(d *tape.Doc, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer d.Release()
	return d.Raw(), nil
}

// parseServed implements registry.Document.
func (s *versionSchema) parseServed(ctx context.Context, raw []byte) (*tape.Doc, error) {
	d, version, err := s.parseStored(raw)
	if err != nil || version == s.version {
		return d, err
	}
	data, _ := textOf(d, nil)
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
	d, err := tape.Parse(raw)
	if err != nil {
		return nil, err
	}
	defer d.Release()
	v := d.Find(tape.Root, "apiVersion")
	if v == tape.None {
		var all map[string]json.RawMessage
		if err := json.Unmarshal(raw, &all); err != nil {
			return nil, err
		}
		all["apiVersion"] = jsontext.AppendString(nil, apiVersion)
		return json.Marshal(all)
	}
	start, end := d.Span(v)
	out := make([]byte, 0, len(raw)+len(apiVersion))
	return append(jsontext.AppendString(append(out, raw[:start]...), apiVersion), raw[end:]...), nil
}
