// Package wire reads and writes protobuf messages without knowing their Go types: their fields, the
// envelope around stored values and bodies, and the resourceVersion in the metadata of an object.
//
// The envelope is a 4-byte prefix and a runtime.Unknown message:
//
//	"k8s\x00" {typeMeta=1 {apiVersion=1, kind=2}, raw=2, contentEncoding=3, contentType=4}
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"binnacle/services/apiserver/internal/json/transcode"
)

// EnvelopePrefix starts every protobuf envelope (specification: "Protobuf envelope").
var EnvelopePrefix = []byte{0x6b, 0x38, 0x73, 0x00}

// Field numbers of runtime.Unknown (the envelope), of every API object, of ObjectMeta and of map
// entries.
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

// Wire types: the lowest 3 bits of a tag. The upper bits are the field number.
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
	Data  []byte // content of a field of type Bytes; a slice of the message
	Value uint64 // value of a field of any other type
}

// Next decodes the first field of a message. rest is the message after that field. It returns
// ErrMalformed if the message does not start with a valid field.
func Next(data []byte) (field Field, rest []byte, err error) {
	// Most fields are of type Bytes, with a tag and a length of one byte each.
	if len(data) > 1 && data[0] < 0x80 && data[0]&7 == Bytes && data[0]>>3 != 0 && int(data[1]) <= min(0x7f, len(data)-2) {
		end := 2 + int(data[1])
		field.Num = int(data[0] >> 3)
		field.Type = Bytes
		field.Data = data[2:end]
		return field, data[end:], nil
	}
	tag, n := binary.Uvarint(data)
	if n <= 0 || tag>>3 == 0 || tag>>3 > 1<<29 {
		return field, nil, ErrMalformed
	}
	data = data[n:]
	field.Num = int(tag >> 3)
	field.Type = int(tag & 7)
	switch field.Type {
	case Varint:
		v, n := binary.Uvarint(data)
		if n <= 0 {
			return field, nil, ErrMalformed
		}
		field.Value = v
		return field, data[n:], nil
	case Fixed64:
		if len(data) < 8 {
			return field, nil, ErrMalformed
		}
		field.Value = binary.LittleEndian.Uint64(data)
		return field, data[8:], nil
	case Fixed32:
		if len(data) < 4 {
			return field, nil, ErrMalformed
		}
		field.Value = uint64(binary.LittleEndian.Uint32(data))
		return field, data[4:], nil
	case Bytes:
		l, n := binary.Uvarint(data)
		if n <= 0 || l > uint64(len(data)-n) {
			return field, nil, ErrMalformed
		}
		field.Data = data[n : n+int(l)]
		return field, data[n+int(l):], nil
	}
	return field, nil, ErrMalformed
}

// Find returns the content of the last field num of type Bytes, or nil if the message has none.
func Find(message []byte, num int) ([]byte, error) {
	var found []byte
	for len(message) > 0 {
		field, rest, err := Next(message)
		if err != nil {
			return nil, err
		}
		if field.Num == num && field.Type == Bytes {
			found = field.Data
		}
		message = rest
	}
	return found, nil
}

// IsEnvelope reports whether a stored value or body starts with EnvelopePrefix, that is, is
// protobuf.
func IsEnvelope(b []byte) bool {
	return len(b) > len(EnvelopePrefix) && string(b[:len(EnvelopePrefix)]) == string(EnvelopePrefix)
}

// OpenEnvelope returns the message in an envelope, and the apiVersion and kind that the envelope
// states. raw is a slice of data.
func OpenEnvelope(data []byte) (raw []byte, apiVersion, kind string, err error) {
	if !IsEnvelope(data) {
		return nil, "", "", errors.New("no protobuf envelope")
	}
	data = data[4:]
	for len(data) > 0 {
		field, rest, err := Next(data)
		if err != nil {
			return nil, "", "", fmt.Errorf("envelope: %w", err)
		}
		switch {
		case field.Num == UnknownRaw && field.Type == Bytes:
			raw = field.Data
		case field.Num == UnknownTypeMeta && field.Type == Bytes:
			for typeMeta := field.Data; len(typeMeta) > 0; {
				typeField, typeRest, err := Next(typeMeta)
				if err != nil {
					return nil, "", "", fmt.Errorf("envelope: %w", err)
				}
				switch typeField.Num {
				case typeMetaAPIVersion:
					apiVersion = string(typeField.Data)
				case typeMetaKind:
					kind = string(typeField.Data)
				}
				typeMeta = typeRest
			}
		}
		data = rest
	}
	return raw, apiVersion, kind, nil
}

// AppendTag appends the tag of a field: its number and wire type.
func AppendTag(b []byte, num, typ int) []byte {
	return binary.AppendUvarint(b, uint64(num)<<3|uint64(typ))
}

// AppendString appends a string field.
func AppendString(data []byte, num int, text string) []byte {
	data = AppendTag(data, num, Bytes)
	data = binary.AppendUvarint(data, uint64(len(text)))
	return append(data, text...)
}

// AppendBytes appends a bytes field.
func AppendBytes(data []byte, num int, s []byte) []byte {
	data = AppendTag(data, num, Bytes)
	data = binary.AppendUvarint(data, uint64(len(s)))
	return append(data, s...)
}

// SizeUvarint returns the size in bytes of n as a varint. n must not be negative.
func SizeUvarint(n int) int {
	s := 1
	for n >= 0x80 {
		n >>= 7
		s++
	}
	return s
}

// Splice encodes an object's message with another metadata.resourceVersion, without decoding it. It
// relies only on metadata being field 1 of every object.
//
// Init or Open sets the message and the version. Then Append writes the new message.
type Splice struct {
	meta, rest []byte // the content of the old metadata, and the fields after it
	// The old resourceVersion field is meta[versionStart:versionEnd]. It is empty if there is none.
	versionStart, versionEnd int
	version                  []byte   // the new value; empty for none
	digits                   [20]byte // memory of version
	metaSize                 int      // size in bytes of the new metadata, without tag and length
	Size                     int      // size in bytes of the whole new message
}

// Init sets the message and the resourceVersion of a revision. It searches raw for the old version.
func (s *Splice) Init(raw []byte, revision int64) error {
	wireField, rest, err := Next(raw)
	if err != nil || wireField.Num != ObjectMetadata || wireField.Type != Bytes {
		return fmt.Errorf("object without leading metadata: %w", ErrMalformed)
	}
	s.meta = wireField.Data
	s.rest = rest
	s.versionStart = len(wireField.Data)
	s.versionEnd = len(wireField.Data)
	for data := wireField.Data; len(data) > 0; {
		at := len(wireField.Data) - len(data)
		field, fieldRest, err := Next(data)
		if err != nil {
			return fmt.Errorf("metadata: %w", err)
		}
		if field.Num == MetaResourceVersion {
			s.versionStart = at
			s.versionEnd = len(wireField.Data) - len(fieldRest)
			break
		}
		if field.Num > MetaResourceVersion {
			s.versionStart = at
			s.versionEnd = at
			break
		}
		data = fieldRest
	}
	s.setVersion(revision, len(s.meta), len(s.rest))
	return nil
}

// setVersion sets the new version and computes the sizes of the new message. meta and rest are the
// sizes in bytes of the old metadata and of the fields after it.
func (s *Splice) setVersion(revision int64, meta, rest int) {
	s.version = s.digits[:0]
	if revision != 0 {
		s.version = transcode.AppendVersion(s.version, revision)
	}
	// The version takes one byte each for tag and length.
	s.metaSize = s.versionStart + 2 + len(s.version) + meta - s.versionEnd
	s.Size = 1 + SizeUvarint(s.metaSize) + s.metaSize + rest
}

// Positions returns a word of five numbers, from the lowest bit up:
//
//	start of metadata | size of metadata | start of version | size of version | size of tail
//
// The constants width… are the widths of the numbers in bits. The constants shift… are the
// positions of their lowest bits. That of the first number is 0.
const (
	widthMeta, widthMetaSize, widthVersion, widthVersionSize, widthTail = 12, 20, 16, 6, 10

	shiftMetaSize    = widthMeta
	shiftVersion     = shiftMetaSize + widthMetaSize
	shiftVersionSize = shiftVersion + widthVersion
	shiftTail        = shiftVersionSize + widthVersionSize
)

// Positions returns where Init found the parts of the message in stored, packed into one word. The
// message must be a slice of stored. The start of the version is relative to the metadata. The tail
// is the end of the envelope after the message. Positions returns 0 if a number does not fit.
func (s *Splice) Positions(stored []byte) uint64 {
	// Slices of one array end at the same capacity, so the difference is an offset.
	meta := cap(stored) - cap(s.meta)
	tail := len(stored) - (meta + len(s.meta) + len(s.rest))
	versionSize := s.versionEnd - s.versionStart
	if meta <= 0 || tail < 0 || meta >= 1<<widthMeta || len(s.meta) >= 1<<widthMetaSize ||
		s.versionStart >= 1<<widthVersion || versionSize >= 1<<widthVersionSize || tail >= 1<<widthTail {
		return 0
	}
	return uint64(meta) | uint64(len(s.meta))<<shiftMetaSize | uint64(s.versionStart)<<shiftVersion |
		uint64(versionSize)<<shiftVersionSize | uint64(tail)<<shiftTail
}

// Open sets the message in a stored value and the resourceVersion of a revision, like Init. It
// takes the parts of the message from the result of Positions instead of searching them.
func (s *Splice) Open(stored []byte, positions uint64, revision int64) {
	metaStart, metaEnd, restEnd := s.unpack(len(stored), positions)
	s.meta = stored[metaStart:metaEnd]
	s.rest = stored[metaEnd:restEnd]
	s.setVersion(revision, len(s.meta), len(s.rest))
}

// ComputeSizes computes the sizes for a stored value of size bytes with known positions. It does
// not read the value: in a long list, each read would be a cache miss.
func (s *Splice) ComputeSizes(size int, positions uint64, revision int64) {
	metaStart, metaEnd, restEnd := s.unpack(size, positions)
	s.setVersion(revision, metaEnd-metaStart, restEnd-metaEnd)
}

// unpack sets the bounds of the old version from the positions in a stored value of size bytes. It
// returns the bounds of the metadata and the end of the message, as offsets in the value.
func (s *Splice) unpack(size int, positions uint64) (metaStart, metaEnd, restEnd int) {
	number := func(shift, width int) int { return int(positions >> shift & (1<<width - 1)) }
	metaStart = number(0, widthMeta)
	metaEnd = metaStart + number(shiftMetaSize, widthMetaSize)
	s.versionStart = number(shiftVersion, widthVersion)
	s.versionEnd = s.versionStart + number(shiftVersionSize, widthVersionSize)
	return metaStart, metaEnd, size - number(shiftTail, widthTail)
}

// AppendMeta appends the metadata field with the new resourceVersion, without the other fields.
func (s *Splice) AppendMeta(out []byte) []byte {
	out = AppendTag(out, ObjectMetadata, Bytes)
	out = binary.AppendUvarint(out, uint64(s.metaSize))
	out = append(out, s.meta[:s.versionStart]...)
	out = AppendBytes(out, MetaResourceVersion, s.version)
	return append(out, s.meta[s.versionEnd:]...)
}

// MessageSize returns the size in bytes of the new message, or with partial, of a message that has
// only the new metadata.
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

// AppendEnvelope appends the start of an envelope for a message of rawSize bytes. The caller
// appends the message and EnvelopeTail.
func AppendEnvelope(dst []byte, apiVersion, kind string, rawSize int) []byte {
	dst = append(dst, EnvelopePrefix...)
	dst = AppendTag(dst, UnknownTypeMeta, Bytes)
	dst = binary.AppendUvarint(dst, uint64(1+SizeUvarint(len(apiVersion))+len(apiVersion)+1+SizeUvarint(len(kind))+len(kind)))
	dst = AppendString(dst, typeMetaAPIVersion, apiVersion)
	dst = AppendString(dst, typeMetaKind, kind)
	dst = AppendTag(dst, UnknownRaw, Bytes)
	return binary.AppendUvarint(dst, uint64(rawSize))
}

// EnvelopeTail is the end of an envelope: an empty contentEncoding and an empty contentType.
var EnvelopeTail = []byte{3<<3 | Bytes, 0, 4<<3 | Bytes, 0}
