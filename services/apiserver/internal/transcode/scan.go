package transcode

// maxNumber is the largest number that a field may have (protobuf's encoding).
const maxNumber = 1<<29 - 1

// place is where the value of a field stands in its message: the content of a text
// or message, the bytes of a number; of a list or map all from its first tag on.
type place struct{ from, to uint32 }

// scan notes where the fields of a message stand.
func (m *message) scan(b []byte, at []place) (found uint64, ok bool) {
	for i := 0; i < len(b); {
		start := i
		tag, next := uint64(b[i]), i+1
		if tag >= 0x80 {
			if tag, next = varint(b, start); next < 0 {
				return 0, false
			}
		}
		n := m.index(tag)
		if n < 0 {
			return 0, false
		}
		from, end := valueAt(b, next, tag)
		if end < 0 {
			return 0, false
		}
		if i = end; n == len(m.fields) {
			continue // of no field
		}
		bit := uint64(1) << n
		repeated := m.repeated&bit != 0
		switch {
		case found&bit == 0:
			found |= bit
			if repeated {
				from = start
			}
			at[n] = place{uint32(from), uint32(i)}
		case repeated:
			at[n].to = uint32(i)
		default:
			return 0, false
		}
	}
	return found, true
}

// index is the index of the field that a tag is of: one behind the last for those that
// the message does not know, -1 for what is none or comes with another wire type.
func (m *message) index(tag uint64) int {
	if tag < uint64(len(m.byTag)) {
		if n := m.byTag[tag]; n != 0 {
			return int(n) - 1
		}
	}
	if !m.foreign(tag) {
		return -1
	}
	return len(m.fields)
}

// valueAt is where the value of a tag begins and ends, without its length; the end is
// -1 when there is none.
func valueAt(b []byte, i int, tag uint64) (from, end int) {
	if i < len(b) && b[i] < 0x80 { // mostly
		switch tag & 7 {
		case wireBytes:
			if end = i + 1 + int(b[i]); end <= len(b) {
				return i + 1, end
			}
			return i, -1
		case wireVarint:
			return i, i + 1
		}
		return i, -1
	}
	n, next := varint(b, i)
	switch {
	case next < 0:
	case tag&7 == wireVarint:
		return i, next
	case tag&7 == wireBytes && n <= uint64(len(b)-next):
		return next, next + int(n)
	}
	return i, -1
}

// foreign tells that a tag is of a field that the message does not know, so that it
// is left out. One that it knows by another wire type is wrong.
func (m *message) foreign(tag uint64) bool {
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

// varint reads a number; the place behind it is -1 when there is none.
func varint(b []byte, i int) (uint64, int) {
	var v uint64
	for shift := 0; i < len(b) && shift < 64; shift += 7 {
		c := b[i]
		i++
		if c < 0x80 {
			if shift == 63 && c > 1 {
				return 0, -1
			}
			return v | uint64(c)<<shift, i
		}
		v |= uint64(c&0x7f) << shift
	}
	return 0, -1
}
