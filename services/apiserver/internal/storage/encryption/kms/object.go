package kms

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The stored form of version 2 is a protobuf message:
//
//	1 encryptedData           bytes
//	2 keyID                   string
//	3 encryptedDEKSource      bytes
//	4 annotations             map of names to bytes
//	5 encryptedDEKSourceType  0: an AES-GCM key, 1: a seed (ciphers.Derived)
const (
	fieldData        = 1
	fieldKeyID       = 2
	fieldSource      = 3
	fieldAnnotations = 4
	fieldSourceType  = 5

	typeKey  = 0
	typeSeed = 1
)

// Bounds of the plugin's responses, in bytes.
const (
	maxKeyID       = 1 << 10
	maxSource      = 1 << 10
	maxAnnotations = 32 << 10
)

// annotation is data that a plugin needs again for decryption.
type annotation struct {
	name  string
	value []byte
}

// envelope is stored together with an encrypted value.
type envelope struct {
	keyID       string
	source      []byte
	annotations []annotation // in the order of their names
	sourceType  uint64
}

// storedValue is a stored value of version 2. data shares memory with the parsed bytes.
type storedValue struct {
	envelope
	data []byte
}

var errTruncated = errors.New("unexpected EOF")

// parseObject parses and validates a stored value.
func parseObject(data []byte) (*storedValue, error) {
	// 1. Decode the fields. Unknown ones are skipped.
	stored := &storedValue{}
	for len(data) > 0 {
		num, typ, n := protowire.ConsumeTag(data)
		if n < 0 {
			return nil, errTruncated
		}
		data = data[n:]

		switch {
		case typ == protowire.BytesType && num <= fieldAnnotations:
			v, n := protowire.ConsumeBytes(data)
			if n < 0 {
				return nil, errTruncated
			}
			data = data[n:]
			if err := stored.setBytesField(num, v); err != nil {
				return nil, err
			}

		case typ == protowire.VarintType && num == fieldSourceType:
			v, n := protowire.ConsumeVarint(data)
			if n < 0 {
				return nil, errTruncated
			}
			stored.sourceType = v
			data = data[n:]

		default:
			n := protowire.ConsumeFieldValue(num, typ, data)
			if n < 0 {
				return nil, errTruncated
			}
			data = data[n:]
		}
	}

	// 2. Validate them.
	stored.sortAnnotations()
	if len(stored.data) == 0 {
		return nil, errors.New("encrypted data is empty")
	}
	return stored, stored.validate()
}

// setBytesField sets a field of the stored form whose type is bytes.
func (o *storedValue) setBytesField(number protowire.Number, data []byte) error {
	switch number {
	case fieldData:
		o.data = data
	case fieldKeyID:
		o.keyID = string(data)
	case fieldSource:
		o.source = slices.Clone(data)
	case fieldAnnotations:
		parsed, err := parseAnnotation(data)
		if err != nil {
			return err
		}
		o.annotations = append(o.annotations, parsed)
	}
	return nil
}

// parseAnnotation decodes one entry of the annotations: a message with the name and the value.
func parseAnnotation(data []byte) (a annotation, err error) {
	for len(data) > 0 {
		num, typ, n := protowire.ConsumeTag(data)
		if n < 0 {
			return a, errTruncated
		}
		data = data[n:]
		n = protowire.ConsumeFieldValue(num, typ, data)
		if n < 0 {
			return a, errTruncated
		}
		if typ == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(data)
			switch num {
			case 1:
				a.name = string(v)
			case 2:
				a.value = slices.Clone(v)
			}
		}
		data = data[n:]
	}
	return a, nil
}

// sortAnnotations sorts annotations. Of several with the same name it keeps the last one.
func (e *envelope) sortAnnotations() {
	slices.Reverse(e.annotations)
	slices.SortStableFunc(e.annotations, func(a, b annotation) int { return strings.Compare(a.name, b.name) })
	e.annotations = slices.CompactFunc(e.annotations, func(a, b annotation) bool { return a.name == b.name })
}

// validate returns an error if the response of a plugin, or its stored form, violates a bound.
func (e *envelope) validate() error {
	if e.sourceType > typeSeed {
		return fmt.Errorf("unknown encryptedDEKSourceType: %d", e.sourceType)
	}
	switch n := len(e.source); {
	case n == 0:
		return errors.New("encrypted DEK source is empty")
	case n > maxSource:
		return fmt.Errorf("encrypted DEK source is %d bytes, which exceeds the max size of %d", n, maxSource)
	}
	if _, err := checkKeyID(e.keyID); err != nil {
		return err
	}
	var errs field.ErrorList
	size := 0
	path := field.NewPath("annotations")
	for _, a := range e.annotations {
		size += len(a.name) + len(a.value)
		errs = append(errs, validation.IsFullyQualifiedDomainName(path, a.name)...)
	}
	if err := errs.ToAggregate(); err != nil {
		return fmt.Errorf("failed to validate annotations: %w", err)
	}
	if size > maxAnnotations {
		return fmt.Errorf("total size of annotations is %d, which exceeds the max size of %d", size, maxAnnotations)
	}
	return nil
}

// checkKeyID validates a key ID. label is the result for metrics.
func checkKeyID(id string) (label string, err error) {
	switch {
	case id == "":
		return "empty", errors.New("keyID is empty")
	case len(id) > maxKeyID:
		return "too_long", fmt.Errorf("keyID is %d bytes, which exceeds the max size of %d", len(id), maxKeyID)
	}
	return "ok", nil
}

// appendHead appends the beginning of the stored form, up to the length of the data. The caller
// appends the data, of the given size in bytes, and then calls appendTo.
func appendHead(dst []byte, size int) []byte {
	dst = protowire.AppendTag(dst, fieldData, protowire.BytesType)
	return protowire.AppendVarint(dst, uint64(size))
}

// appendTo appends the part of the stored form after the data.
func (e *envelope) appendTo(dst []byte) []byte {
	dst = protowire.AppendTag(dst, fieldKeyID, protowire.BytesType)
	dst = protowire.AppendString(dst, e.keyID)
	dst = protowire.AppendTag(dst, fieldSource, protowire.BytesType)
	dst = protowire.AppendBytes(dst, e.source)
	for _, a := range e.annotations {
		entry := protowire.AppendTag(nil, 1, protowire.BytesType)
		entry = protowire.AppendString(entry, a.name)
		entry = protowire.AppendTag(entry, 2, protowire.BytesType)
		entry = protowire.AppendBytes(entry, a.value)
		dst = protowire.AppendTag(dst, fieldAnnotations, protowire.BytesType)
		dst = protowire.AppendBytes(dst, entry)
	}
	if e.sourceType != 0 {
		dst = protowire.AppendTag(dst, fieldSourceType, protowire.VarintType)
		dst = protowire.AppendVarint(dst, e.sourceType)
	}
	return dst
}

// hash identifies the envelope. It covers all fields, because all of them are sent to the plugin
// and affect the resulting key.
func (e *envelope) hash() (out [sha256.Size]byte) {
	digest := sha256.New()
	writePart := func(b []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		digest.Write(n[:])
		digest.Write(b)
	}
	writePart(binary.AppendUvarint(nil, e.sourceType))
	writePart(e.source)
	writePart([]byte(e.keyID))
	for _, a := range e.annotations {
		writePart([]byte(a.name))
		writePart(a.value)
	}
	digest.Sum(out[:0])
	return out
}

// annotationMap returns the annotations in the form of the plugin's API.
func (e *envelope) annotationMap() map[string][]byte {
	if len(e.annotations) == 0 {
		return nil
	}
	m := map[string][]byte{}
	for _, a := range e.annotations {
		m[a.name] = a.value
	}
	return m
}

// annotationsOf converts the annotations of a plugin's response.
func annotationsOf(response map[string][]byte) (out []annotation) {
	for name, value := range response {
		out = append(out, annotation{name, slices.Clone(value)})
	}
	slices.SortFunc(out, func(a, b annotation) int { return strings.Compare(a.name, b.name) })
	return out
}
