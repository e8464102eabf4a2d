package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// withoutManagedFields removes managedFields from the metadata of an object, of the items of a list and of
// the objects in a table. It returns nil for invalid JSON, because that might still contain managedFields.
func withoutManagedFields(text []byte) []byte {
	d := json.NewDecoder(bytes.NewReader(text))
	s := stripper{text: text, dec: d}
	if err := s.object([]string{}); err != nil {
		return nil
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil // trailing data was not examined
	}
	s.out = append(s.out, text[s.copied:]...)
	return s.out
}

// stripper copies a JSON text without managedFields.
type stripper struct {
	text   []byte
	dec    *json.Decoder
	out    []byte
	copied int // number of bytes of text that are copied or skipped
}

// nested returns the path of a field and whether metadata may be below it.
func nested(path []string, key string) (next []string, ok bool) {
	at := ""
	if len(path) > 0 {
		at = path[len(path)-1]
	}
	switch {
	case at == "" && (key == "metadata" || key == "items" || key == "rows"),
		at == "items" && key == "metadata", at == "rows" && key == "object", at == "object" && key == "metadata":
		return append(path, key), true
	}
	return nil, false
}

// object examines a value that may be an object or a list of objects.
func (s *stripper) object(path []string) error {
	token, err := s.dec.Token()
	if err != nil {
		return err
	}
	switch token {
	case json.Delim('['):
		for s.dec.More() {
			if err := s.object(path); err != nil {
				return err
			}
		}
	case json.Delim('{'):
		if err := s.fields(path); err != nil {
			return err
		}
	default:
		return nil
	}
	_, err = s.dec.Token()
	return err
}

func (s *stripper) fields(path []string) error {
	metadata := len(path) > 0 && path[len(path)-1] == "metadata"
	for first := true; s.dec.More(); {
		before := int(s.dec.InputOffset())
		token, err := s.dec.Token()
		if err != nil {
			return err
		}
		key, _ := token.(string)
		if metadata && key == "managedFields" {
			if err := s.skip(before, first); err != nil {
				return err
			}
			continue
		}
		first = false
		if next, ok := nested(path, key); ok {
			err = s.object(next)
		} else {
			err = s.dec.Decode(new(json.RawMessage))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// skip omits a field that begins after offset before, with its comma: the preceding one, or for a first field
// the following one.
func (s *stripper) skip(before int, first bool) error {
	if err := s.dec.Decode(new(json.RawMessage)); err != nil {
		return err
	}
	after := int(s.dec.InputOffset())
	if first {
		if i := after + len(s.text[after:]) - len(bytes.TrimLeft(s.text[after:], " \t\r\n")); i < len(s.text) && s.text[i] == ',' {
			after = i + 1
		}
		if i := bytes.IndexByte(s.text[before:], '"'); i >= 0 {
			before += i
		}
	}
	s.out = append(s.out, s.text[s.copied:before]...)
	s.copied = after
	return nil
}
