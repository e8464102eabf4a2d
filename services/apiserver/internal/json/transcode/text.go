package transcode

import (
	"encoding/binary"
	"slices"
	"unicode/utf8"
)

// class holds the class of each byte in a JSON string.
type class [256]uint8

const (
	plain   = iota
	escaped // encoding/json escapes it, or it may start a character that is escaped
	quote
	backslash
)

// written holds the classes of bytes in strings to write. All bytes beyond ASCII need inspection.
var written = func() (c class) {
	for i := range c {
		if i < 0x20 || i >= utf8.RuneSelf || i == '<' || i == '>' || i == '&' || i == '"' || i == '\\' {
			c[i] = escaped
		}
	}
	return c
}()

// given holds the classes of bytes in strings that are JSON already. Bytes beyond ASCII are plain,
// except for the first byte of the line and paragraph separators.
var given = func() (c class) {
	for i := range c {
		switch {
		case i < 0x20 || i == '<' || i == '>' || i == '&' || i == 0xe2:
			c[i] = escaped
		case i == '"':
			c[i] = quote
		case i == '\\':
			c[i] = backslash
		}
	}
	return c
}()

// appendString appends a string as encoding/json writes it.
func appendString(dst, s []byte) []byte {
	if plainText(s) {
		n := len(dst)
		dst = slices.Grow(dst, len(s)+2)[:n+len(s)+2]
		dst[n], dst[len(dst)-1] = '"', '"'
		copy(dst[n+1:], s)
		return dst
	}
	return append(appendEscaped(append(dst, '"'), s), '"')
}

// plainText reports whether a string contains only plain bytes.
func plainText(s []byte) bool {
	if len(s) < 8 {
		for _, c := range s {
			if written[c] != plain {
				return false
			}
		}
		return true
	}
	for i := 0; i+8 < len(s); i += 8 {
		if anyEscaped(binary.LittleEndian.Uint64(s[i:])) {
			return false
		}
	}
	return !anyEscaped(binary.LittleEndian.Uint64(s[len(s)-8:]))
}

// anyEscaped reports whether one of eight bytes is not plain.
func anyEscaped(w uint64) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	zero := func(x uint64) uint64 { return (x - ones) &^ x }
	low := w - 0x20*ones
	return (w|low&^w|zero(w^'\\'*ones)|zero((w|2*ones)^'>'*ones)|zero((w|4*ones)^'&'*ones))&tops != 0
}

const hex = "0123456789abcdef"

func appendEscaped(dst, s []byte) []byte {
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if written[c] == plain {
			i++
			continue
		}
		if c < utf8.RuneSelf {
			dst = append(dst, s[start:i]...)
			dst = appendEscape(dst, c)
			i++
			start = i
			continue
		}
		r, n := utf8.DecodeRune(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			dst = append(append(dst, s[start:i]...), `\ufffd`...)
			start = i + n
		case r == '\u2028' || r == '\u2029':
			dst = append(append(dst, s[start:i]...), `\u202`...)
			dst = append(dst, hex[r&0xf])
			start = i + n
		}
		i += n
	}
	return append(dst, s[start:]...)
}

// appendEscape appends one ASCII byte, escaped.
func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
}

// appendEmbedded appends a JSON object that encoding/json would leave unchanged. It returns false
// for any other text.
func appendEmbedded(dst, b []byte) ([]byte, bool) {
	if len(b) == 0 || b[0] != '{' || !compact(b) {
		return dst, false
	}
	return append(dst, b...), true
}

// compact reports whether a text is a JSON object or list without white space and without
// characters that encoding/json would escape.
func compact(b []byte) bool {
	const levels = 64
	var lists uint64 // bit set of the open levels that are lists; the innermost is the lowest bit
	depth, i := 0, 0
value:
	if i >= len(b) {
		return false
	}
	switch c := b[i]; c {
	case '{', '[':
		if depth++; depth > levels {
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
		if i = stringEnd(b, i+1); i < 0 {
			return false
		}
	default:
		if i = scalarEnd(b, i); i < 0 {
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
	if i = stringEnd(b, i+1); i < 0 || i >= len(b) || b[i] != ':' {
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

// stringEnd returns the index after the closing quote of a string whose content starts at i. It
// returns -1 if the string does not end or contains characters that would be escaped.
func stringEnd(b []byte, i int) int {
	for i < len(b) {
		for i+8 <= len(b) && !anyEscaped(binary.LittleEndian.Uint64(b[i:])) {
			i += 8
		}
		for i < len(b) && given[b[i]] == plain {
			i++
		}
		if i == len(b) {
			break
		}
		switch given[b[i]] {
		case quote:
			return i + 1
		case backslash:
			if i+1 >= len(b) {
				return -1
			}
			switch b[i+1] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
				i += 2
			case 'u':
				if i+6 > len(b) || !isHex(b[i+2]) || !isHex(b[i+3]) || !isHex(b[i+4]) || !isHex(b[i+5]) {
					return -1
				}
				i += 6
			default:
				return -1
			}
		default:
			return -1
		}
	}
	return -1
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// scalarEnd returns the index after a number, true, false or null, or -1 if there is none.
func scalarEnd(b []byte, i int) int {
	for _, word := range [...]string{"true", "false", "null"} {
		if len(b)-i >= len(word) && string(b[i:i+len(word)]) == word {
			return i + len(word)
		}
	}
	if b[i] == '-' {
		i++
	}
	switch {
	case i < len(b) && b[i] == '0':
		i++
	default:
		if i = digitsEnd(b, i); i < 0 {
			return -1
		}
	}
	if i < len(b) && b[i] == '.' {
		if i = digitsEnd(b, i+1); i < 0 {
			return -1
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		return digitsEnd(b, i)
	}
	return i
}

// digitsEnd returns the index after at least one digit, or -1 if there is none.
func digitsEnd(b []byte, i int) int {
	from := i
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	if i == from {
		return -1
	}
	return i
}
