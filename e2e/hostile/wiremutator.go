package hostile

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// wireField is a field of a protobuf message. If children is not nil, the value is a message.
type wireField struct {
	number   protowire.Number
	kind     protowire.Type
	value    []byte // encoded, with its length prefix
	children []wireField
}

// parseMessage returns the fields of a message, or false if data is not a message. A string that
// could be a message counts as one.
func parseMessage(data []byte, depth int) ([]wireField, bool) {
	fields := []wireField{}
	for len(data) > 0 {
		number, kind, size := protowire.ConsumeTag(data)
		if size < 0 || number > 200 {
			return nil, false
		}
		data = data[size:]
		size = protowire.ConsumeFieldValue(number, kind, data)
		if size < 0 {
			return nil, false
		}
		f := wireField{number: number, kind: kind, value: data[:size]}
		if kind == protowire.BytesType && depth < 30 {
			content, _ := protowire.ConsumeBytes(data[:size])
			if children, ok := parseMessage(content, depth+1); ok && len(children) > 0 {
				f.children = children
			}
		}
		fields = append(fields, f)
		data = data[size:]
	}
	return fields, true
}

// appendMessage encodes fields.
func appendMessage(data []byte, fields []wireField) []byte {
	for _, f := range fields {
		data = protowire.AppendVarint(data, uint64(f.number)<<3|uint64(f.kind))
		if f.children != nil {
			data = protowire.AppendBytes(data, appendMessage(nil, f.children))
			continue
		}
		data = append(data, f.value...)
	}
	return data
}

// collectMessages returns pointers to all lists of fields below and including fields.
func collectMessages(fields *[]wireField) []*[]wireField {
	messages := []*[]wireField{fields}
	for i := range *fields {
		if (*fields)[i].children != nil {
			messages = append(messages, collectMessages(&(*fields)[i].children)...)
		}
	}
	return messages
}

// mutateStructure changes one field of an object in the protobuf form of Kubernetes: its presence,
// order, number, wire type or value. It returns the body unchanged if it cannot parse it.
func mutateStructure(random *rand.Rand, body []byte) []byte {
	prefix := []byte("k8s\x00")
	message, ok := parseMessage(bytes.TrimPrefix(body, prefix), 0)
	if !ok {
		return body
	}
	all := collectMessages(&message)
	fields := all[random.IntN(len(all))]
	if len(*fields) == 0 {
		return body
	}
	i := random.IntN(len(*fields))
	field := &(*fields)[i]
	switch random.IntN(12) {
	case 0: // duplicated field: a scalar is replaced, a message is merged
		*fields = append(*fields, *field)
	case 1:
		*fields = append((*fields)[:i:i], (*fields)[i+1:]...)
	case 2:
		j := random.IntN(len(*fields))
		(*fields)[i], (*fields)[j] = (*fields)[j], (*fields)[i]
	case 3:
		field.number = pickOne[protowire.Number](random, 0, 1, 2, 3, field.number+1, 19000, 1<<29-1, 1<<30)
	case 4:
		field.kind = pickOne(random, protowire.VarintType, protowire.BytesType, protowire.Fixed32Type, protowire.Fixed64Type,
			protowire.StartGroupType, protowire.EndGroupType, 6, 7)
	case 5: // a field of another message
		if other := *all[random.IntN(len(all))]; len(other) > 0 {
			copied := other[random.IntN(len(other))]
			if copied.children != nil { // encoded, because fields may be below it
				copied.value = protowire.AppendBytes(nil, appendMessage(nil, copied.children))
				copied.children = nil
			}
			*fields = append(*fields, copied)
		}
	case 6: // an unknown field, or a group
		*fields = append(*fields, pickOne(random,
			wireField{number: 100, kind: protowire.BytesType, value: protowire.AppendString(nil, strings.Repeat("\xff", random.IntN(300)))},
			wireField{number: 101, kind: protowire.StartGroupType, value: bytes.Repeat([]byte{0xab, 0x06}, random.IntN(5000))},
			wireField{number: 102, kind: protowire.StartGroupType, value: []byte{0xb4, 0x06}}))
	case 7: // a value that is too long for its message
		field.kind = protowire.BytesType
		field.children = nil
		field.value = protowire.AppendVarint(nil, pickOne[uint64](random, 1<<20, math.MaxInt32, math.MaxUint32, math.MaxInt64, math.MaxUint64))
	case 8: // the same message inside itself
		for range pickOne(random, 1, 10, 200, 10_000) {
			field.value = protowire.AppendBytes(nil, appendMessage(nil, []wireField{{number: field.number, kind: protowire.BytesType, value: field.value}}))
		}
		field.children = nil
	case 9: // repeated values in packed form
		field.children = nil
		field.kind = protowire.BytesType
		field.value = protowire.AppendBytes(nil, bytes.Repeat([]byte{byte(random.IntN(256))}, random.IntN(20)))
	default:
		mutateValue(random, field)
	}
	return appendMessage(bytes.Clone(prefix), message)
}

// mutateValue replaces the value of a field by an unusual one of its wire type.
func mutateValue(r *rand.Rand, f *wireField) {
	f.children = nil
	switch f.kind {
	case protowire.VarintType:
		f.value = pickOne(r, protowire.AppendVarint(nil, pickOne[uint64](r, 0, 2, math.MaxInt32+1, 1<<63, math.MaxUint64)),
			[]byte{0x80, 0x80, 0x00}, bytes.Repeat([]byte{0xff}, 11))
	case protowire.BytesType:
		f.value = protowire.AppendString(nil, pickOne(r, "", "\x00", "\xff\xfe", "\xed\xa0\x80", "null", `{"a":`, "\u2028<>&", "\x0a\x00",
			"\x08\x01", strings.Repeat("x", 300), strings.Repeat("\x0a\x00", 1000), "../..", "1e999999999", "9223372036854775808"))
	case protowire.Fixed64Type:
		f.value = binary.LittleEndian.AppendUint64(nil, math.Float64bits(pickOne(r, math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), math.MaxFloat64)))
	}
}
