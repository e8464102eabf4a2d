package objectmeta

import (
	"bytes"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"binnacle/services/apiserver/internal/json/tape"
)

// StringsOnly reports whether an array or object is not empty and contains only strings. keys is
// the number of keys that precede each value: 1 for objects, 0 for arrays.
func StringsOnly(doc *tape.Doc, value tape.Ref, keys tape.Ref) bool {
	for i, end := doc.First(value), doc.Next(value); i < end; i = doc.Next(i + keys) {
		if doc.Kind(i+keys) != tape.String {
			return false
		}
	}
	return doc.Len(value) > 0
}

// Clean returns object metadata in its stored form, without unknown and empty fields. With
// dropMalformed, it also removes fields of a wrong type; otherwise they are an error. unknown holds
// the paths of unknown fields below the metadata, if wantUnknown is set. An unset creationTimestamp
// is omitted.
func Clean(data []byte, wantUnknown, dropMalformed bool) (out []byte, unknown []string, err error) {
	doc, err := tape.Parse(data)
	if err != nil {
		return nil, nil, err
	}
	defer doc.Release()
	var meta metav1.ObjectMeta
	sorted := doc.AppendCanonical(nil, tape.Root)
	strict, err := kjson.UnmarshalStrict(sorted, &meta)
	if err != nil {
		if !dropMalformed || doc.Kind(tape.Root) != tape.Object {
			return nil, nil, err
		}
		meta, strict = decodeWellFormed(doc)
	}
	if wantUnknown {
		for _, e := range strict {
			if f, ok := e.(kjson.FieldError); ok {
				unknown = append(unknown, f.FieldPath())
			}
		}
	}
	out, err = marshalMeta(&meta)
	if err != nil {
		return nil, nil, err
	}
	if equalsCanonical(out, sorted) && !hasFraction(doc) {
		return data, unknown, nil
	}
	return out, unknown, nil
}

// hasFraction reports whether a number has a fraction or an exponent. The numbers of metadata are
// integers, so that 1.0 must become 1.
func hasFraction(doc *tape.Doc) bool {
	for ref := range tape.Ref(doc.Entries()) {
		if doc.Kind(ref) != tape.Number {
			continue
		}
		if _, ok := doc.Int(ref); !ok {
			return true
		}
	}
	return false
}

// decodeWellFormed decodes the fields of metadata that can be decoded, and skips the others. strict
// holds the errors of unknown and repeated fields.
func decodeWellFormed(d *tape.Doc) (meta metav1.ObjectMeta, strict []error) {
	for k, end := d.First(tape.Root), d.Next(tape.Root); k < end; k = d.Next(k + 1) {
		field := fmt.Appendf(nil, "{%s:%s}", d.Text(k), d.Text(k+1))
		var trial metav1.ObjectMeta // a failed decoding may change its target
		if err := kjson.UnmarshalCaseSensitivePreserveInts(field, &trial); err != nil {
			continue
		}
		errs, err := kjson.UnmarshalStrict(field, &meta)
		if err != nil {
			continue
		}
		strict = append(strict, errs...)
	}
	return meta, strict
}

// marshalMeta encodes metadata without an unset creationTimestamp.
func marshalMeta(meta *metav1.ObjectMeta) ([]byte, error) {
	out, err := json.Marshal(meta)
	if err != nil || !meta.CreationTimestamp.IsZero() {
		return out, err
	}
	for _, unset := range []string{`"creationTimestamp":null,`, `,"creationTimestamp":null`, `"creationTimestamp":null`} {
		if i := bytes.Index(out, []byte(unset)); i >= 0 {
			return append(out[:i:i], out[i+len(unset):]...), nil
		}
	}
	return out, nil
}

// equalsCanonical reports whether a document's canonical form equals sorted.
func equalsCanonical(data, sorted []byte) bool {
	doc, err := tape.Parse(data)
	if err != nil {
		return false
	}
	defer doc.Release()
	return bytes.Equal(doc.AppendCanonical(nil, tape.Root), sorted)
}
