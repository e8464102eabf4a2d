// Package wire reads and writes protobuf messages without their types, the envelope of stored
// values and bodies, and the resourceVersion in a message.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"binnacle/services/apiserver/internal/json/transcode"
)

// EnvelopePrefix starts every protobuf envelope (specification: "Protobuf envelope").
var EnvelopePrefix = []byte{0x6b, 0x38, 0x73, 0x00}

// Field numbers on the wire.
const (
	UnknownTypeMeta = 1
	UnknownRaw      = 2

	typeMetaAPIVersion = 1
	typeMetaKind       = 2

	ObjectMetadata = 1

	MetaName            = 1
	MetaNamespace       = 3
	MetaResourceVersion = 6
	MetaLabels          = 11

	MapKey   = 1
	MapValue = 2
)

// Wire types.
const (
	Varint  = 0
	Fixed64 = 1
	Bytes   = 2
	Fixed32 = 5
)

// ErrMalformed is the error of input that is not a protobuf message.
var ErrMalformed = errors.New("malformed protobuf")

// Field is one field of a message.
type Field struct {
	Num   int
	Type  int
	Data  []byte // of the type Bytes
	Value uint64 // of the other types
}

// Next splits the first field off a message.
func Next(b []byte) (f Field, rest []byte, err error) {
	if len(b) > 1 && b[0] < 0x80 && b[0]&7 == Bytes && b[0]>>3 != 0 && int(b[1]) <= min(0x7f, len(b)-2) { // fast path for most fields
		end := 2 + int(b[1])
		f.Num = int(b[0] >> 3)
		f.Type = Bytes
		f.Data = b[2:end]
		return f, b[end:], nil
	}
	tag, n := binary.Uvarint(b)
	if n <= 0 || tag>>3 == 0 || tag>>3 > 1<<29 {
		return f, nil, ErrMalformed
	}
	b = b[n:]
	f.Num = int(tag >> 3)
	f.Type = int(tag & 7)
	switch f.Type {
	case Varint:
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return f, nil, ErrMalformed
		}
		f.Value = v
		return f, b[n:], nil
	case Fixed64:
		if len(b) < 8 {
			return f, nil, ErrMalformed
		}
		f.Value = binary.LittleEndian.Uint64(b)
		return f, b[8:], nil
	case Fixed32:
		if len(b) < 4 {
			return f, nil, ErrMalformed
		}
		f.Value = uint64(binary.LittleEndian.Uint32(b))
		return f, b[4:], nil
	case Bytes:
		l, n := binary.Uvarint(b)
		if n <= 0 || l > uint64(len(b)-n) {
			return f, nil, ErrMalformed
		}
		f.Data = b[n : n+int(l)]
		return f, b[n+int(l):], nil
	}
	return f, nil, ErrMalformed
}

// Find returns the last occurrence of a length-delimited field, or nil if the message has none.
func Find(b []byte, num int) ([]byte, error) {
	var found []byte
	for len(b) > 0 {
		f, rest, err := Next(b)
		if err != nil {
			return nil, err
		}
		if f.Num == num && f.Type == Bytes {
			found = f.Data
		}
		b = rest
	}
	return found, nil
}

// IsEnvelope reports whether a stored value is protobuf.
func IsEnvelope(b []byte) bool {
	return len(b) > 4 && b[0] == EnvelopePrefix[0] && b[1] == EnvelopePrefix[1] && b[2] == EnvelopePrefix[2] && b[3] == EnvelopePrefix[3]
}

// OpenEnvelope returns the raw message of an envelope and its type.
func OpenEnvelope(b []byte) (raw []byte, apiVersion, kind string, err error) {
	if !IsEnvelope(b) {
		return nil, "", "", errors.New("no protobuf envelope")
	}
	b = b[4:]
	for len(b) > 0 {
		f, rest, err := Next(b)
		if err != nil {
			return nil, "", "", fmt.Errorf("envelope: %w", err)
		}
		switch {
		case f.Num == UnknownRaw && f.Type == Bytes:
			raw = f.Data
		case f.Num == UnknownTypeMeta && f.Type == Bytes:
			for t := f.Data; len(t) > 0; {
				typeField, typeRest, err := Next(t)
				if err != nil {
					return nil, "", "", fmt.Errorf("envelope: %w", err)
				}
				switch typeField.Num {
				case typeMetaAPIVersion:
					apiVersion = string(typeField.Data)
				case typeMetaKind:
					kind = string(typeField.Data)
				}
				t = typeRest
			}
		}
		b = rest
	}
	return raw, apiVersion, kind, nil
}

// AppendTag appends the tag of a field: its number and wire type.
func AppendTag(b []byte, num, typ int) []byte {
	return binary.AppendUvarint(b, uint64(num)<<3|uint64(typ))
}

// AppendString appends a string field.
func AppendString(b []byte, num int, s string) []byte {
	b = AppendTag(b, num, Bytes)
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// AppendBytes appends a bytes field.
func AppendBytes(b []byte, num int, s []byte) []byte {
	b = AppendTag(b, num, Bytes)
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// SizeUvarint returns the number of bytes of a varint.
func SizeUvarint(n int) int {
	s := 1
	for n >= 0x80 {
		n >>= 7
		s++
	}
	return s
}

// Splice is a message whose metadata.resourceVersion is about to be replaced. It relies only on
// metadata being field 1 of every object.
type Splice struct {
	meta, rest    []byte // the metadata, and the fields after it
	before, after int    // the bounds of the old resourceVersion within the metadata
	version       []byte // the new value
	digits        [20]byte
	metaSize      int
	Size          int // of the whole message
}

// Init prepares a message for the resourceVersion of a revision.
func (s *Splice) Init(raw []byte, revision int64) error {
	f, rest, err := Next(raw)
	if err != nil || f.Num != ObjectMetadata || f.Type != Bytes {
		return fmt.Errorf("object without leading metadata: %w", ErrMalformed)
	}
	s.meta = f.Data
	s.rest = rest
	s.before = len(f.Data)
	s.after = len(f.Data)
	for b := f.Data; len(b) > 0; {
		at := len(f.Data) - len(b)
		field, fieldRest, err := Next(b)
		if err != nil {
			return fmt.Errorf("metadata: %w", err)
		}
		if field.Num == MetaResourceVersion {
			s.before = at
			s.after = len(f.Data) - len(fieldRest)
			break
		}
		if field.Num > MetaResourceVersion {
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
func (s *Splice) setVersion(revision int64, meta, rest int) {
	s.version = s.digits[:0]
	if revision != 0 {
		s.version = transcode.AppendVersion(s.version, revision)
	}
	s.metaSize = s.before + 2 + len(s.version) + meta - s.after
	s.Size = 1 + SizeUvarint(s.metaSize) + s.metaSize + rest
}

// The word that Positions returns has five numbers. The constants place… are their widths in bits, the
// constants at… the position of their lowest bit; that of the first number is 0.
const (
	placeMeta, placeMetaSize, placeBefore, placeGap, placeTail = 12, 20, 16, 6, 10

	atMetaSize = placeMeta
	atBefore   = atMetaSize + placeMetaSize
	atGap      = atBefore + placeBefore
	atTail     = atGap + placeGap
)

// Positions returns the positions of the parts within the stored value that they are slices of, packed
// into one word: the start and size of the metadata, the position and size of the version in it,
// and the size of the tail after the message. It returns 0 if a number does not fit.
func (s *Splice) Positions(stored []byte) uint64 {
	// Slices of one array end at the same capacity, so the difference is an offset.
	meta := cap(stored) - cap(s.meta)
	tail := len(stored) - (meta + len(s.meta) + len(s.rest))
	gap := s.after - s.before
	if meta <= 0 || tail < 0 || meta >= 1<<placeMeta || len(s.meta) >= 1<<placeMetaSize ||
		s.before >= 1<<placeBefore || gap >= 1<<placeGap || tail >= 1<<placeTail {
		return 0
	}
	return uint64(meta) | uint64(len(s.meta))<<atMetaSize | uint64(s.before)<<atBefore | uint64(gap)<<atGap | uint64(tail)<<atTail
}

// Open prepares a stored value with known positions for the resourceVersion of a revision.
func (s *Splice) Open(stored []byte, positions uint64, revision int64) {
	meta, end, rest := s.unpack(len(stored), positions)
	s.meta = stored[meta:end]
	s.rest = stored[end:rest]
	s.setVersion(revision, len(s.meta), len(s.rest))
}

// ComputeSizes computes the sizes for a stored value of size bytes with known positions. It does not
// read the value: in a long list, each read would be a cache miss.
func (s *Splice) ComputeSizes(size int, positions uint64, revision int64) {
	meta, end, rest := s.unpack(size, positions)
	s.setVersion(revision, end-meta, rest-end)
}

// unpack unpacks positions of a stored value of size bytes. It returns the bounds of the metadata and
// the end of the rest.
func (s *Splice) unpack(size int, positions uint64) (meta, end, rest int) {
	number := func(at, width int) int { return int(positions >> at & (1<<width - 1)) }
	meta = number(0, placeMeta)
	end = meta + number(atMetaSize, placeMetaSize)
	s.before = number(atBefore, placeBefore)
	s.after = s.before + number(atGap, placeGap)
	return meta, end, size - number(atTail, placeTail)
}

// AppendMeta appends the metadata field with the new resourceVersion, without the other fields.
func (s *Splice) AppendMeta(out []byte) []byte {
	out = AppendTag(out, ObjectMetadata, Bytes)
	out = binary.AppendUvarint(out, uint64(s.metaSize))
	out = append(out, s.meta[:s.before]...)
	out = AppendBytes(out, MetaResourceVersion, s.version)
	return append(out, s.meta[s.after:]...)
}

// MessageSize returns the size in bytes of the whole message, or of one with the metadata alone.
func (s *Splice) MessageSize(partial bool) int {
	if partial {
		return 1 + SizeUvarint(s.metaSize) + s.metaSize
	}
	return s.Size
}

// Append appends the message with the new version.
func (s *Splice) Append(out []byte) []byte { return append(s.AppendMeta(out), s.rest...) }

// EnvelopeSize returns the size of an envelope around a raw message.
func EnvelopeSize(apiVersion, kind string, rawSize int) int {
	typeMeta := 1 + SizeUvarint(len(apiVersion)) + len(apiVersion) + 1 + SizeUvarint(len(kind)) + len(kind)
	return 4 + 1 + SizeUvarint(typeMeta) + typeMeta + 1 + SizeUvarint(rawSize) + rawSize + len(EnvelopeTail)
}

// AppendEnvelope appends the start of an envelope for a raw message of rawSize bytes. The
// message and EnvelopeTail follow.
func AppendEnvelope(b []byte, apiVersion, kind string, rawSize int) []byte {
	b = append(b, EnvelopePrefix...)
	b = AppendTag(b, UnknownTypeMeta, Bytes)
	b = binary.AppendUvarint(b, uint64(1+SizeUvarint(len(apiVersion))+len(apiVersion)+1+SizeUvarint(len(kind))+len(kind)))
	b = AppendString(b, typeMetaAPIVersion, apiVersion)
	b = AppendString(b, typeMetaKind, kind)
	b = AppendTag(b, UnknownRaw, Bytes)
	return binary.AppendUvarint(b, uint64(rawSize))
}

// EnvelopeTail holds the empty contentEncoding and contentType.
var EnvelopeTail = []byte{3<<3 | Bytes, 0, 4<<3 | Bytes, 0}
