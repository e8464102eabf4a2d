package codec

import (
	"encoding/binary"
	"errors"
	"fmt"

	"binnacle/services/apiserver/internal/json/transcode"
)

// envelopePrefix starts every protobuf envelope (specification: "Protobuf envelope").
var envelopePrefix = []byte{0x6b, 0x38, 0x73, 0x00}

// Field numbers on the wire.
const (
	unknownTypeMeta = 1
	unknownRaw      = 2

	typeMetaAPIVersion = 1
	typeMetaKind       = 2

	objectMetadata = 1

	metaName            = 1
	metaNamespace       = 3
	metaResourceVersion = 6
	metaLabels          = 11

	mapKey   = 1
	mapValue = 2
)

// Wire types.
const (
	wireVarint = 0
	wire64     = 1
	wireBytes  = 2
	wire32     = 5
)

var errWire = errors.New("malformed protobuf")

// wireField is one field of a message.
type wireField struct {
	num  int
	typ  int
	data []byte // of wireBytes
	u    uint64 // of the other types
}

// next splits the first field off a message.
func next(b []byte) (f wireField, rest []byte, err error) {
	if len(b) > 1 && b[0] < 0x80 && b[0]&7 == wireBytes && b[0]>>3 != 0 && int(b[1]) <= min(0x7f, len(b)-2) { // fast path for most fields
		end := 2 + int(b[1])
		f.num = int(b[0] >> 3)
		f.typ = wireBytes
		f.data = b[2:end]
		return f, b[end:], nil
	}
	tag, n := binary.Uvarint(b)
	if n <= 0 || tag>>3 == 0 || tag>>3 > 1<<29 {
		return f, nil, errWire
	}
	b = b[n:]
	f.num = int(tag >> 3)
	f.typ = int(tag & 7)
	switch f.typ {
	case wireVarint:
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return f, nil, errWire
		}
		f.u = v
		return f, b[n:], nil
	case wire64:
		if len(b) < 8 {
			return f, nil, errWire
		}
		f.u = binary.LittleEndian.Uint64(b)
		return f, b[8:], nil
	case wire32:
		if len(b) < 4 {
			return f, nil, errWire
		}
		f.u = uint64(binary.LittleEndian.Uint32(b))
		return f, b[4:], nil
	case wireBytes:
		l, n := binary.Uvarint(b)
		if n <= 0 || l > uint64(len(b)-n) {
			return f, nil, errWire
		}
		f.data = b[n : n+int(l)]
		return f, b[n+int(l):], nil
	}
	return f, nil, errWire
}

// find returns the last occurrence of a length-delimited field, or nil if the message has none.
func find(b []byte, num int) ([]byte, error) {
	var found []byte
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return nil, err
		}
		if f.num == num && f.typ == wireBytes {
			found = f.data
		}
		b = rest
	}
	return found, nil
}

// isEnvelope reports whether a stored value is protobuf.
func isEnvelope(b []byte) bool {
	return len(b) > 4 && b[0] == envelopePrefix[0] && b[1] == envelopePrefix[1] && b[2] == envelopePrefix[2] && b[3] == envelopePrefix[3]
}

// openEnvelope returns the raw message of an envelope and its type.
func openEnvelope(b []byte) (raw []byte, apiVersion, kind string, err error) {
	if !isEnvelope(b) {
		return nil, "", "", errors.New("no protobuf envelope")
	}
	b = b[4:]
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return nil, "", "", fmt.Errorf("envelope: %w", err)
		}
		switch {
		case f.num == unknownRaw && f.typ == wireBytes:
			raw = f.data
		case f.num == unknownTypeMeta && f.typ == wireBytes:
			for t := f.data; len(t) > 0; {
				typeField, typeRest, err := next(t)
				if err != nil {
					return nil, "", "", fmt.Errorf("envelope: %w", err)
				}
				switch typeField.num {
				case typeMetaAPIVersion:
					apiVersion = string(typeField.data)
				case typeMetaKind:
					kind = string(typeField.data)
				}
				t = typeRest
			}
		}
		b = rest
	}
	return raw, apiVersion, kind, nil
}

func appendTag(b []byte, num, typ int) []byte {
	return binary.AppendUvarint(b, uint64(num)<<3|uint64(typ))
}

func appendString(b []byte, num int, s string) []byte {
	b = appendTag(b, num, wireBytes)
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendBytes(b []byte, num int, s []byte) []byte {
	b = appendTag(b, num, wireBytes)
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func sizeUvarint(n int) int {
	s := 1
	for n >= 0x80 {
		n >>= 7
		s++
	}
	return s
}

// splice is a message whose metadata.resourceVersion is about to be replaced. It relies only on
// metadata being field 1 of every object.
type splice struct {
	meta, rest    []byte // the metadata, and the fields after it
	before, after int    // the bounds of the old resourceVersion within the metadata
	version       []byte // the new value
	digits        [20]byte
	metaSize      int
	size          int // of the whole message
}

// init prepares a message for the resourceVersion of a revision.
func (s *splice) init(raw []byte, revision int64) error {
	f, rest, err := next(raw)
	if err != nil || f.num != objectMetadata || f.typ != wireBytes {
		return fmt.Errorf("object without leading metadata: %w", errWire)
	}
	s.meta = f.data
	s.rest = rest
	s.before = len(f.data)
	s.after = len(f.data)
	for b := f.data; len(b) > 0; {
		at := len(f.data) - len(b)
		field, fieldRest, err := next(b)
		if err != nil {
			return fmt.Errorf("metadata: %w", err)
		}
		if field.num == metaResourceVersion {
			s.before = at
			s.after = len(f.data) - len(fieldRest)
			break
		}
		if field.num > metaResourceVersion {
			s.before = at
			s.after = at
			break
		}
		b = fieldRest
	}
	s.setVersion(revision, len(s.meta), len(s.rest))
	return nil
}

// setVersion sets the new version, and computes the resulting sizes from those of the metadata and
// of the rest.
func (s *splice) setVersion(revision int64, meta, rest int) {
	s.version = s.digits[:0]
	if revision != 0 {
		s.version = transcode.AppendVersion(s.version, revision)
	}
	s.metaSize = s.before + 2 + len(s.version) + meta - s.after
	s.size = 1 + sizeUvarint(s.metaSize) + s.metaSize + rest
}

// Widths in bits and positions of the numbers in a word of positions.
const (
	placeMeta, placeMetaSize, placeBefore, placeGap, placeTail = 12, 20, 16, 6, 10

	atMetaSize = placeMeta
	atBefore   = atMetaSize + placeMetaSize
	atGap      = atBefore + placeBefore
	atTail     = atGap + placeGap
)

// positions returns the positions of the parts within the stored value that they are slices of, packed
// into one word: the start and size of the metadata, the position and size of the version in it,
// and the size of the tail after the message. It returns 0 if a number does not fit.
func (s *splice) positions(stored []byte) uint64 {
	meta := cap(stored) - cap(s.meta)
	tail := len(stored) - (meta + len(s.meta) + len(s.rest))
	gap := s.after - s.before
	if meta <= 0 || tail < 0 || meta >= 1<<placeMeta || len(s.meta) >= 1<<placeMetaSize ||
		s.before >= 1<<placeBefore || gap >= 1<<placeGap || tail >= 1<<placeTail {
		return 0
	}
	return uint64(meta) | uint64(len(s.meta))<<atMetaSize | uint64(s.before)<<atBefore | uint64(gap)<<atGap | uint64(tail)<<atTail
}

// open is init for a stored value with known positions.
func (s *splice) open(stored []byte, positions uint64, revision int64) {
	meta, end, rest := s.unpack(len(stored), positions)
	s.meta = stored[meta:end]
	s.rest = stored[end:rest]
	s.setVersion(revision, len(s.meta), len(s.rest))
}

// computeSizes computes the sizes for a stored value of size bytes with known positions. It does not
// read the value: in a long list, each read would be a cache miss.
func (s *splice) computeSizes(size int, positions uint64, revision int64) {
	meta, end, rest := s.unpack(size, positions)
	s.setVersion(revision, end-meta, rest-end)
}

// unpack unpacks positions of a stored value of size bytes. It returns the bounds of the metadata and
// the end of the rest.
func (s *splice) unpack(size int, positions uint64) (meta, end, rest int) {
	number := func(at, width int) int { return int(positions >> at & (1<<width - 1)) }
	meta = number(0, placeMeta)
	end = meta + number(atMetaSize, placeMetaSize)
	s.before = number(atBefore, placeBefore)
	s.after = s.before + number(atGap, placeGap)
	return meta, end, size - number(atTail, placeTail)
}

// appendMeta appends the metadata field alone.
func (s *splice) appendMeta(out []byte) []byte {
	out = appendTag(out, objectMetadata, wireBytes)
	out = binary.AppendUvarint(out, uint64(s.metaSize))
	out = append(out, s.meta[:s.before]...)
	out = appendBytes(out, metaResourceVersion, s.version)
	return append(out, s.meta[s.after:]...)
}

// messageSize returns the size in bytes of the whole message, or of one with the metadata alone.
func (s *splice) messageSize(partial bool) int {
	if partial {
		return 1 + sizeUvarint(s.metaSize) + s.metaSize
	}
	return s.size
}

// append appends the message with the new version.
func (s *splice) append(out []byte) []byte { return append(s.appendMeta(out), s.rest...) }

// envelopeSize returns the size of an envelope around a raw message.
func envelopeSize(apiVersion, kind string, rawSize int) int {
	typeMeta := 1 + sizeUvarint(len(apiVersion)) + len(apiVersion) + 1 + sizeUvarint(len(kind)) + len(kind)
	return 4 + 1 + sizeUvarint(typeMeta) + typeMeta + 1 + sizeUvarint(rawSize) + rawSize + len(envelopeTail)
}

// appendEnvelope appends the beginning of an envelope for a raw message of rawSize bytes. The
// message and envelopeTail follow.
func appendEnvelope(b []byte, apiVersion, kind string, rawSize int) []byte {
	b = append(b, envelopePrefix...)
	b = appendTag(b, unknownTypeMeta, wireBytes)
	b = binary.AppendUvarint(b, uint64(1+sizeUvarint(len(apiVersion))+len(apiVersion)+1+sizeUvarint(len(kind))+len(kind)))
	b = appendString(b, typeMetaAPIVersion, apiVersion)
	b = appendString(b, typeMetaKind, kind)
	b = appendTag(b, unknownRaw, wireBytes)
	return binary.AppendUvarint(b, uint64(rawSize))
}

// envelopeTail holds the empty contentEncoding and contentType.
var envelopeTail = []byte{3<<3 | wireBytes, 0, 4<<3 | wireBytes, 0}
