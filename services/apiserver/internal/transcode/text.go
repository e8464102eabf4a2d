package transcode

import (
	"encoding/binary"
	"slices"
	"unicode/utf8"
)

// class is what a byte is inside a string of JSON.
type class [256]uint8

const (
	plain   = iota
	escaped // has to be escaped, by encoding/json, or may begin what has
	quote
	backslash
)

// classes of bytes of strings that are to be written, where all beyond ASCII are
// looked at.
var written = func() (c class) {
	for i := range c {
		if i < 0x20 || i >= utf8.RuneSelf || i == '<' || i == '>' || i == '&' || i == '"' || i == '\\' {
			c[i] = escaped
		}
	}
	return c
}()

// given are the classes of bytes of strings that are JSON already: those beyond ASCII
// stand for themselves, but for what the line and paragraph separators begin with.
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

// appendString appends a text as encoding/json writes it.
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

// plainText tells that no byte of a text has to be looked at.
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

// anyEscaped tells whether one of eight bytes has to be looked at.
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

// appendEscape appends one byte of ASCII, escaped.
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

// appendEmbedded appends an object of JSON that encoding/json would leave as it is.
func appendEmbedded(dst, b []byte) ([]byte, bool) {
	if len(b) == 0 || b[0] != '{' || !compact(b) {
		return dst, false
	}
	return append(dst, b...), true
}

// compact tells whether a text is an object or a list of JSON without white space
// and without anything to be escaped.
func compact(b []byte) bool {
	const levels = 64
	var lists uint64 // which of the open ones are lists, the innermost the lowest bit
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
		if i < len(b) && b[i] == c+2 { // the bracket that closes it
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
	// What fields are owned is mostly this.
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

// stringEnd is where a string ends, behind its quote, whose content begins at i; -1
// when it does not, or has what would be escaped.
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

// scalarEnd is where a number, true, false or null ends; -1 when it is none.
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

// digitsEnd is where digits end, of which there is one at least.
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
