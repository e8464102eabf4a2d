package codec

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	utiljson "k8s.io/apimachinery/pkg/util/json"
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
	item, err := cborItem(b)
	if err != nil {
		return nil, err
	}
	return append([]byte(selfDescribed), item...), nil
}

func cborItem(b []byte) ([]byte, error) {
	var v any
	if err := utiljson.Unmarshal(b, &v); err != nil {
		return nil, err
	}
	return direct.Marshal(v)
}

// CBORToJSON converts a CBOR document from a client to JSON.
func CBORToJSON(b []byte) ([]byte, error) {
	var v any
	if err := direct.Unmarshal(b, &v); err != nil {
		return nil, fmt.Errorf("the body is not a CBOR object: %w", err)
	}
	return json.Marshal(v)
}

// appendCBORHead appends the head of an item with its length (RFC 8949, section 3).
func appendCBORHead(dst []byte, major byte, n int) []byte {
	switch {
	case n < 24:
		return append(dst, major|byte(n))
	case n < 1<<8:
		return append(dst, major|24, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(dst, major|25), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(dst, major|26), uint32(n))
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

// AppendCBORListHead appends the beginning of a list. The caller appends the n elements, and the
// last one ends the list. head is the JSON of the list without elements. elements is the name of
// the field that holds them.
func AppendCBORListHead(dst, head []byte, elements string, n int) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(head, &fields); err != nil {
		return nil, err
	}
	delete(fields, elements)
	dst = append(dst, selfDescribed...)
	dst = appendCBORHead(dst, cborMap, len(fields)+1)
	for name, value := range fields {
		item, err := cborItem(value)
		if err != nil {
			return nil, err
		}
		dst = append(appendCBORText(dst, name), item...)
	}
	return appendCBORHead(appendCBORText(dst, elements), cborArray, n), nil
}

// CBORItem converts the JSON of a list element to CBOR.
func CBORItem(b []byte) ([]byte, error) { return cborItem(bytes.TrimSpace(b)) }
