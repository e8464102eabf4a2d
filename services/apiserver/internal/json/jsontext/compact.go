package jsontext

// Compact reports whether a text is a JSON object or list that encoding/json would write unchanged:
// it is valid, has no white space between values and no character that encoding/json escapes. It
// returns false for documents of more than 64 levels.
func Compact(b []byte) bool {
	const levels = 64
	var lists uint64 // bit set of the open levels that are lists; the innermost is the lowest bit
	depth, i := 0, 0
value:
	if i >= len(b) {
		return false
	}
	switch c := b[i]; c {
	case '{', '[':
		depth++
		if depth > levels {
			return false
		}
		lists <<= 1
		i++
		if i < len(b) && b[i] == c+2 { // the closing bracket
			goto closing
		}
		if c == '{' {
			goto key
		}
		lists |= 1
		goto value
	case '"':
		i = plainString(b, i+1)
		if i < 0 {
			return false
		}
	default:
		i = scalarEnd(b, i)
		if i < 0 {
			return false
		}
	}
after:
	if i >= len(b) || depth == 0 {
		return depth == 0 && i == len(b)
	}
	switch {
	case b[i] == ',':
		i++
		if lists&1 != 0 {
			goto value
		}
	case b[i] == '}' && lists&1 == 0, b[i] == ']' && lists&1 != 0:
		goto closing
	default:
		return false
	}
key:
	if i >= len(b) || b[i] != '"' {
		return false
	}
	i = plainString(b, i+1)
	if i < 0 || i >= len(b) || b[i] != ':' {
		return false
	}
	i++
	// Most values of managed fields are empty objects.
	if i+2 < len(b) && b[i] == '{' && b[i+1] == '}' {
		i += 2
		goto after
	}
	goto value
closing:
	i++
	depth--
	lists >>= 1
	goto after
}

// plainString is String for a string without markup. It returns -1 for any other.
func plainString(b []byte, i int) int {
	end, has := String(b, i)
	if has&Markup != 0 {
		return -1
	}
	return end
}

// scalarEnd returns the index after a number, true, false or null, or -1 if there is none.
func scalarEnd(b []byte, i int) int {
	for _, word := range [...]string{"true", "false", "null"} {
		if hasWord(b, i, word) {
			return i + len(word)
		}
	}
	end, _ := Number(b, i)
	return end
}
