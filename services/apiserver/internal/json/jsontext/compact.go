package jsontext

// compactState is what Compact expects at its position.
type compactState uint8

const (
	expectValue compactState = iota
	expectKey
	expectEnd // of a value: a comma, a closing bracket, or the end of the document
)

// Compact reports whether a text is a JSON object or list that encoding/json would write unchanged:
// it is valid, has no white space between values and no character that encoding/json escapes. It
// returns false for documents of more than 64 levels.
func Compact(data []byte) bool {
	const levels = 64
	var lists uint64 // bit set of the open levels that are lists; the innermost is the lowest bit
	depth, i := 0, 0
	state := expectValue
	for i < len(data) {
		c := data[i]
		switch {
		case state == expectKey:
			i = keyEnd(data, i)
			if i < 0 {
				return false
			}
			state = expectValue
		case state == expectValue && (c == '{' || c == '['):
			depth++
			if depth > levels {
				return false
			}
			lists <<= 1
			state = expectKey
			if c == '[' {
				lists |= 1
				state = expectValue
			}
			i++
			if i < len(data) && data[i] == c+2 { // the closing bracket
				state = expectEnd
			}
		case state == expectValue:
			i = compactScalarEnd(data, i)
			if i < 0 {
				return false
			}
			state = expectEnd
		case depth == 0:
			return false // more than one value
		case c == ',':
			i++
			state = expectKey
			if lists&1 != 0 {
				state = expectValue
			}
		case c == '}' && lists&1 == 0, c == ']' && lists&1 != 0:
			i++
			depth--
			lists >>= 1
		default:
			return false
		}
	}
	return state == expectEnd && depth == 0
}

// keyEnd returns the index after a key without markup and its colon, or -1 if there is none at i.
func keyEnd(data []byte, i int) int {
	if data[i] != '"' {
		return -1
	}
	i = plainString(data, i+1)
	if i < 0 || i >= len(data) || data[i] != ':' {
		return -1
	}
	return i + 1
}

// compactScalarEnd returns the index after a string without markup or another scalar, or -1 if
// there is none at i.
func compactScalarEnd(data []byte, i int) int {
	if data[i] == '"' {
		return plainString(data, i+1)
	}
	return scalarEnd(data, i)
}

// plainString skips a string without markup like String. It returns -1 for any other string.
func plainString(b []byte, i int) int {
	end, features := String(b, i)
	if features&Markup != 0 {
		return -1
	}
	return end
}

// scalarEnd returns the index after a number, true, false or null, or -1 if there is none.
func scalarEnd(data []byte, i int) int {
	for _, word := range [...]string{"true", "false", "null"} {
		if hasWord(data, i, word) {
			return i + len(word)
		}
	}
	end, _ := Number(data, i)
	return end
}
