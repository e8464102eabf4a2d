package transcode

// maxNumber is the largest field number of the protobuf encoding.
const maxNumber = 1<<29 - 1

// position is the position of a field's value in its message: the content of a string or message,
// the bytes of a number, or for a list or map everything from its first tag on.
type position struct{ from, to uint32 }

// scan records the positions of the fields of a message in at, which has an element for each field.
// found is the set of the fields that the message has. ok is false for a malformed message and for
// a field that occurs twice, unless it is a list or map.
func (m *message) scan(data []byte, at []position) (found uint64, ok bool) {
	for i := 0; i < len(data); {
		start := i
		tag := uint64(data[i])
		next := i + 1
		if tag >= 0x80 {
			tag, next = varint(data, start)
			if next < 0 {
				return 0, false
			}
		}
		index := m.fieldIndex(tag)
		if index < 0 {
			return 0, false
		}
		from, end := valueAt(data, next, tag)
		if end < 0 {
			return 0, false
		}
		i = end
		if index == len(m.fields) {
			continue // an unknown field
		}
		bit := uint64(1) << index
		repeated := m.repeated&bit != 0
		switch {
		case found&bit == 0:
			found |= bit
			if repeated {
				from = start
			}
			at[index] = position{uint32(from), uint32(i)}
		case repeated:
			at[index].to = uint32(i)
		default:
			return 0, false
		}
	}
	return found, true
}

// fieldIndex returns the index of a tag's field. It returns len(m.fields) for an unknown field and
// -1 for an invalid tag or a known field with another wire type.
func (m *message) fieldIndex(tag uint64) int {
	if tag < uint64(len(m.byTag)) {
		if n := m.byTag[tag]; n != 0 {
			return int(n) - 1
		}
	}
	if !m.isUnknown(tag) {
		return -1
	}
	return len(m.fields)
}

// valueAt returns the bounds of the value that follows a tag, without its length. end is -1 if
// there is no valid value.
func valueAt(data []byte, i int, tag uint64) (from, end int) {
	if i < len(data) && data[i] < 0x80 { // fast path: the length or number takes one byte
		switch tag & 7 {
		case wireBytes:
			end = i + 1 + int(data[i])
			if end <= len(data) {
				return i + 1, end
			}
			return i, -1
		case wireVarint:
			return i, i + 1
		}
		return i, -1
	}
	n, next := varint(data, i)
	switch {
	case next < 0:
	case tag&7 == wireVarint:
		return i, next
	case tag&7 == wireBytes && n <= uint64(len(data)-next):
		return next, next + int(n)
	}
	return i, -1
}

// isUnknown reports whether a tag belongs to an unknown field, which is omitted. A known field with
// another wire type is an error.
func (m *message) isUnknown(tag uint64) bool {
	n := tag >> 3
	if n == 0 || n > maxNumber {
		return false
	}
	for i := range m.fields {
		if m.fields[i].tag>>3 == n {
			return false
		}
	}
	return true
}

// varint reads a number and returns the index after it, or -1 if there is no valid number.
func varint(data []byte, i int) (uint64, int) {
	var value uint64
	for shift := 0; i < len(data) && shift < 64; shift += 7 {
		c := data[i]
		i++
		if c < 0x80 {
			if shift == 63 && c > 1 {
				return 0, -1
			}
			return value | uint64(c)<<shift, i
		}
		value |= uint64(c&0x7f) << shift
	}
	return 0, -1
}
