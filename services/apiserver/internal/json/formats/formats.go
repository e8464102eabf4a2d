// Package formats converts JSON to and from CBOR and YAML, and indents JSON. It also writes lists
// and events in these formats piece by piece.
package formats

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
	goyaml "sigs.k8s.io/yaml/goyaml.v2"

	"binnacle/services/apiserver/internal/json/jsontext"
)

// CBOR responses are converted from JSON responses, so that every form is available in CBOR.
// Strings are byte strings and binary data is its base64 text, as the readers of Kubernetes expect
// (KEP-4222). Each document starts with the self-describing tag.

// selfDescribed is the encoding of tag 55799 (RFC 8949, section 3.4.6).
const selfDescribed = "\xd9\xd9\xf7"

// Major types of CBOR (RFC 8949, section 3.1).
const (
	cborArray = 4 << 5
	cborMap   = 5 << 5
)

// JSONToCBOR converts a JSON document to CBOR.
func JSONToCBOR(b []byte) ([]byte, error) {
	item, err := marshalCBOR(b)
	if err != nil {
		return nil, err
	}
	return append([]byte(selfDescribed), item...), nil
}

// marshalCBOR converts JSON to CBOR without the self-describing tag.
func marshalCBOR(b []byte) ([]byte, error) {
	var value any
	if err := utiljson.Unmarshal(b, &value); err != nil {
		return nil, err
	}
	return direct.Marshal(value)
}

// CBORToJSON converts a CBOR document from a client to JSON.
func CBORToJSON(b []byte) ([]byte, error) {
	var value any
	if err := direct.Unmarshal(b, &value); err != nil {
		return nil, fmt.Errorf("the body is not a CBOR object: %w", err)
	}
	return json.Marshal(value)
}

// appendCBORHead appends the head of an item with its length (RFC 8949, section 3).
func appendCBORHead(dst []byte, major byte, argument int) []byte {
	switch {
	case argument < 24:
		return append(dst, major|byte(argument))
	case argument < 1<<8:
		return append(dst, major|24, byte(argument))
	case argument < 1<<16:
		return binary.BigEndian.AppendUint16(append(dst, major|25), uint16(argument))
	}
	return binary.BigEndian.AppendUint32(append(dst, major|26), uint32(argument))
}

// appendCBORText appends a string as a byte string, like all strings of a response.
func appendCBORText(dst []byte, s string) []byte {
	return append(appendCBORHead(dst, 2<<5, len(s)), s...)
}

// AppendCBOREvent appends a watch event that contains an object's CBOR.
func AppendCBOREvent(dst []byte, typ string, object []byte) []byte {
	dst = append(dst, selfDescribed...)
	dst = appendCBORHead(dst, cborMap, 2)
	dst = appendCBORText(appendCBORText(dst, "type"), typ)
	return append(appendCBORText(dst, "object"), object...)
}

// AppendCBORListHead appends the start of a list of length elements. The caller appends the elements. No
// text follows the last one, because the head states the number. head is the JSON of the list
// without elements. elements is the name of the field that holds them.
func AppendCBORListHead(dst, head []byte, elements string, length int) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(head, &fields); err != nil {
		return nil, err
	}
	delete(fields, elements)
	dst = append(dst, selfDescribed...)
	dst = appendCBORHead(dst, cborMap, len(fields)+1)
	for name, value := range fields {
		item, err := marshalCBOR(value)
		if err != nil {
			return nil, err
		}
		dst = append(appendCBORText(dst, name), item...)
	}
	return appendCBORHead(appendCBORText(dst, elements), cborArray, length), nil
}

// CBORItem converts the JSON of a list element to CBOR.
func CBORItem(b []byte) ([]byte, error) { return marshalCBOR(bytes.TrimSpace(b)) }

// maxLayout is the maximum ratio of indentation to JSON in bytes, beyond the first MiB of
// indentation.
const maxLayout = 8

// tooDeepToIndent reports whether indenting the JSON would produce mostly indentation, because it
// is deeply nested.
func tooDeepToIndent(b []byte) bool { return jsontext.Measure(b).Indent > 1<<20+maxLayout*len(b) }

// Indent indents JSON by two spaces per level. It returns JSON unchanged if tooDeepToIndent.
func Indent(data []byte) ([]byte, error) {
	if tooDeepToIndent(data) {
		return data, nil
	}
	var w bytes.Buffer
	err := json.Indent(&w, bytes.TrimRight(data, "\n"), "", "  ")
	return w.Bytes(), err
}

// JSONToYAML converts JSON to YAML. It first escapes characters that are valid in JSON but not in
// YAML. JSON that is too deep to indent stays JSON, which is valid YAML.
func JSONToYAML(data []byte) ([]byte, error) {
	if tooDeepToIndent(data) {
		return escapeForYAML(data), nil
	}
	// Most texts contain none of the bytes that start such characters.
	for _, start := range []byte{0x7f, 0xc2, 0xe2, 0xef} {
		if bytes.IndexByte(data, start) >= 0 {
			data = escapeForYAML(data)
			break
		}
	}
	out, err := yaml.JSONToYAML(data)
	if err != nil { // some JSON is not YAML: keys of more than 1024 characters, escapes of surrogates
		var v any
		if utiljson.Unmarshal(data, &v) == nil { // replaces invalid text by U+FFFD
			return goyaml.Marshal(v)
		}
	}
	return out, err
}

// escapeForYAML escapes DEL, C1 control characters, the line breaks of YAML, the byte order mark
// and noncharacters. They occur in strings only.
func escapeForYAML(escaped []byte) []byte {
	out := make([]byte, 0, len(escaped)+16)
	for len(escaped) > 0 {
		r, n := utf8.DecodeRune(escaped)
		if r >= 0x7f && r <= 0x9f || r == 0x2028 || r == 0x2029 || r == 0xfeff || r == 0xfffe || r == 0xffff {
			out = fmt.Appendf(out, "\\u%04x", r)
		} else {
			out = append(out, escaped[:n]...)
		}
		escaped = escaped[n:]
	}
	return out
}

// Layout formats a list as YAML or as indented JSON, one element at a time. Formatting the whole
// list at once would take many times its size.
type Layout struct {
	elements string // name of the field that holds the elements
	yaml     bool
	tail     []byte // the text that follows the elements
	first    bool   // no element was appended yet
	scratch  bytes.Buffer
}

// NewLayout returns a layout for a list whose elements are in the given field.
func NewLayout(elements string, yaml bool) *Layout {
	return &Layout{elements: elements, yaml: yaml, first: true}
}

// AppendHead appends the text that precedes the elements. list is the JSON of the list without
// elements. empty states that no element follows.
func (l *Layout) AppendHead(dst, list []byte, empty bool) ([]byte, error) {
	var formatted []byte
	var err error
	var emptyField, fieldStart string // the empty field, and the part of it that precedes the elements
	if l.yaml {
		formatted, err = JSONToYAML(list)
		emptyField = l.elements + ": []\n"
		fieldStart = l.elements + ":\n"
	} else {
		formatted, err = Indent(list)
		emptyField = `"` + l.elements + `": []`
		fieldStart = `"` + l.elements + `": [`
	}
	if err != nil {
		return nil, err
	}
	if empty {
		return append(dst, formatted...), nil
	}
	// The list's own fields contain no client text at this depth.
	start := bytes.Index(append([]byte("\n"), formatted...), []byte("\n"+l.indent()+emptyField))
	if start < 0 {
		return nil, fmt.Errorf("a list without %s", l.elements)
	}
	start += len(l.indent())
	l.tail = formatted[start+len(emptyField):]
	if !l.yaml {
		l.tail = append([]byte("\n  ]"), l.tail...)
	}
	return append(append(dst, formatted[:start]...), fieldStart...), nil
}

// indent returns the indentation of the list's own fields.
func (l *Layout) indent() string {
	if l.yaml {
		return ""
	}
	return "  "
}

// AppendItem appends an element, given as JSON.
func (l *Layout) AppendItem(dst, item []byte) ([]byte, error) {
	l.scratch.Reset()
	if tooDeepToIndent(item) {
		return l.appendAsIs(dst, item), nil
	}
	if l.yaml {
		l.scratch.WriteString(`{"` + l.elements + `":[`)
		l.scratch.Write(item)
		l.scratch.WriteString("]}")
		b, err := JSONToYAML(l.scratch.Bytes())
		return append(dst, bytes.TrimPrefix(b, []byte(l.elements+":\n"))...), err
	}
	if !l.first {
		dst = append(dst, ',')
	}
	l.first = false
	const prefix = "    "
	if err := json.Indent(&l.scratch, item, prefix, "  "); err != nil {
		return nil, err
	}
	return append(append(append(dst, '\n'), prefix...), l.scratch.Bytes()...), nil
}

// appendAsIs appends an element that is too deep to indent.
func (l *Layout) appendAsIs(dst, item []byte) []byte {
	if l.yaml {
		return append(append(append(dst, "- "...), escapeForYAML(item)...), '\n')
	}
	if !l.first {
		dst = append(dst, ',')
	}
	l.first = false
	return append(append(dst, "\n    "...), item...)
}

// AppendTail appends the text that follows the elements.
func (l *Layout) AppendTail(dst []byte) []byte { return append(dst, l.tail...) }
