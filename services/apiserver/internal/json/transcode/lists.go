package transcode

import (
	"bytes"

	"binnacle/services/apiserver/internal/json/jsontext"
)

// appendList appends a list. b starts with the tag of the first element. Other fields may occur
// between the elements. The scan of the message checked all bounds in b.
func (r *runner) appendList(f *field, dst, b []byte, depth int) ([]byte, bool) {
	dst = append(dst, '[')
	ok := true
	for i := 0; i < len(b); {
		tag, next := varint(b, i)
		n, end := varint(b, next)
		if tag&7 == wireBytes {
			next = end
			end += int(n)
		}
		data := b[next:end]
		i = end
		if tag != f.tag {
			continue
		}
		if dst[len(dst)-1] != '[' {
			dst = append(dst, ',')
		}
		switch f.elem {
		case text:
			dst = jsontext.AppendBytes(dst, data)
		case boolean, number64:
			dst = appendNumber(dst, f.elem, n)
		case number32:
			dst = appendNumber(dst, f.elem, uint64(int64(int32(n))))
		case nested:
			dst, ok = r.appendValue(f, nested, dst, data, depth)
		default:
			dst, ok = appendSpecial(dst, f.elem, data)
		}
		if !ok {
			return dst, false
		}
	}
	return append(dst, ']'), true
}

// appendMap appends a map. b has the form that appendList reads. It returns false unless the keys
// are in ascending order.
func (r *runner) appendMap(f *field, dst, b []byte, depth int) ([]byte, bool) {
	dst = append(dst, '{')
	var last []byte
	first := true
	ok := true
	for i := 0; i < len(b); {
		tag, next := varint(b, i)
		n, end := varint(b, next)
		if tag&7 == wireBytes {
			next = end
			end += int(n)
		}
		entry := b[next:end]
		i = end
		if tag != f.tag {
			continue
		}
		key, v, isPlain := splitEntry(entry)
		if !isPlain {
			return dst, false
		}
		if !first && bytes.Compare(last, key) >= 0 {
			return dst, false
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		last = key
		dst = append(jsontext.AppendBytes(dst, key), ':')
		switch f.elem {
		case text:
			dst = jsontext.AppendBytes(dst, v)
		case binaryText:
			dst = appendBinary(dst, v)
		case nested:
			dst, ok = r.appendObject(f.of, dst, v, depth+1)
		default:
			dst, ok = appendSpecial(dst, f.elem, v)
		}
		if !ok {
			return dst, false
		}
	}
	return append(dst, '}'), true
}

// splitEntry returns the key and the value of a map entry. It returns false if the entry repeats
// one of them or has other fields.
func splitEntry(entry []byte) (key, value []byte, ok bool) {
	seen := [3]bool{}
	for i := 0; i < len(entry); {
		tag := entry[i]
		if tag != 1<<3|wireBytes && tag != 2<<3|wireBytes || seen[tag>>3] {
			return nil, nil, false
		}
		seen[tag>>3] = true
		n, next := varint(entry, i+1)
		if next < 0 || n > uint64(len(entry)-next) {
			return nil, nil, false
		}
		i = next + int(n)
		if tag>>3 == 1 {
			key = entry[next:i]
		} else {
			value = entry[next:i]
		}
	}
	return key, value, true
}
