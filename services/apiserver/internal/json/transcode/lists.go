package transcode

import (
	"bytes"

	"binnacle/services/apiserver/internal/json/jsontext"
)

// appendList appends a list. encoded starts with the tag of the first element. Other fields may occur
// between the elements. The scan of the message checked all bounds in encoded.
func (r *runner) appendList(target *field, dst, encoded []byte, depth int) ([]byte, bool) {
	dst = append(dst, '[')
	ok := true
	for i := 0; i < len(encoded); {
		tag, next := varint(encoded, i)
		number, end := varint(encoded, next)
		if tag&7 == wireBytes {
			next = end
			end += int(number)
		}
		data := encoded[next:end]
		i = end
		if tag != target.tag {
			continue
		}
		if dst[len(dst)-1] != '[' {
			dst = append(dst, ',')
		}
		switch target.elem {
		case text:
			dst = jsontext.AppendBytes(dst, data)
		case boolean, number64:
			dst = appendNumber(dst, target.elem, number)
		case number32:
			dst = appendNumber(dst, target.elem, uint64(int64(int32(number))))
		case nested:
			dst, ok = r.appendValue(target, nested, dst, data, depth)
		default:
			dst, ok = appendSpecial(dst, target.elem, data)
		}
		if !ok {
			return dst, false
		}
	}
	return append(dst, ']'), true
}

// appendMap appends a map. encoded has the form that appendList reads. It returns false unless the keys
// are in ascending order.
func (r *runner) appendMap(target *field, dst, encoded []byte, depth int) ([]byte, bool) {
	dst = append(dst, '{')
	var last []byte
	first := true
	ok := true
	for i := 0; i < len(encoded); {
		tag, next := varint(encoded, i)
		n, end := varint(encoded, next)
		if tag&7 == wireBytes {
			next = end
			end += int(n)
		}
		entry := encoded[next:end]
		i = end
		if tag != target.tag {
			continue
		}
		key, value, isPlain := splitEntry(entry)
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
		switch target.elem {
		case text:
			dst = jsontext.AppendBytes(dst, value)
		case binaryText:
			dst = appendBinary(dst, value)
		case nested:
			dst, ok = r.appendObject(target.message, dst, value, depth+1)
		default:
			dst, ok = appendSpecial(dst, target.elem, value)
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
