package jsontext

import (
	"encoding/binary"
	"math/bits"
)

// Features are the properties of a string that String found.
type Features uint8

const (
	// Escapes: the string has escapes.
	Escapes Features = 1 << iota
	// Wide: the string has bytes beyond ASCII, which need not be valid UTF-8.
	Wide
	// Markup: the string has characters that encoding/json escapes although JSON does not require
	// it: <, > and &, or bytes that start the line and paragraph separators.
	Markup
)

// Classes of the bytes of a string.
const (
	plain = iota
	quote
	backslash
	wide
	markup
	separator // first byte of U+2028 and U+2029, and of other characters
	control
)

var classes = func() (c [256]uint8) {
	for i := range c {
		switch {
		case i < 0x20:
			c[i] = control
		case i == '"':
			c[i] = quote
		case i == '\\':
			c[i] = backslash
		case i == '<' || i == '>' || i == '&':
			c[i] = markup
		case i == 0xe2:
			c[i] = separator
		case i >= 0x80:
			c[i] = wide
		}
	}
	return c
}()

// String returns the index after the closing quote of a string whose content starts at i, and what
// the string contains. The index is -1 if the string is not valid JSON or does not end. String does
// not check that the string is UTF-8.
func String(data []byte, i int) (end int, features Features) {
	for {
		i = plainEnd(data, i)
		if i == len(data) {
			return -1, features
		}
		switch classes[data[i]] {
		case quote:
			return i + 1, features
		case backslash:
			features |= Escapes
			n := escapeLen(data[i+1:])
			if n == 0 {
				return -1, features
			}
			i += 1 + n
		case wide:
			features |= Wide
			for i < len(data) && classes[data[i]] == wide {
				i++
			}
		case markup:
			features |= Markup
			i++
		case separator:
			features |= Markup | Wide
			i++
		default:
			return -1, features
		}
	}
}

// plainEnd returns the index of the first byte from i on that is not plain.
func plainEnd(data []byte, i int) int {
	for ; i+8 <= len(data); i += 8 {
		if found := nonPlainBits(binary.LittleEndian.Uint64(data[i:])); found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for i < len(data) && classes[data[i]] == plain {
		i++
	}
	return i
}

// nonPlainBits returns a word whose lowest set bit is in the first of eight bytes that is not
// plain. It returns 0 if all are plain. Bits above the lowest have no meaning, because a
// subtraction may borrow from the bytes above.
//
// Each term sets the top bit of some bytes:
//
//   - w: bytes beyond ASCII.
//   - low &^ w: control characters. Subtracting 0x20 from a byte below it borrows, which sets the top
//     bit.
//   - zero(w ^ c): bytes equal to c. The XOR makes them 0, and only for a byte of 0 does subtracting 1
//     set a top bit that was clear.
//
// An OR covers two characters that differ in one bit: '<' | 2 is '>', and '"' | 4 is '&'.
func nonPlainBits(w uint64) uint64 {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	zero := func(x uint64) uint64 { return (x - ones) &^ x }
	low := w - 0x20*ones
	return (w | low&^w | zero(w^'\\'*ones) | zero((w|2*ones)^'>'*ones) | zero((w|4*ones)^'&'*ones)) & tops
}

// escapeLen returns the length of the escape after a backslash, or 0 for an invalid one.
func escapeLen(text []byte) int {
	if len(text) == 0 {
		return 0
	}
	switch text[0] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 1
	case 'u':
		if len(text) >= 5 && isHex(text[1]) && isHex(text[2]) && isHex(text[3]) && isHex(text[4]) {
			return 5
		}
	}
	return 0
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// Number returns the index after the number at i, or -1 if there is none. integer reports whether
// the number has neither a fraction nor an exponent.
func Number(data []byte, i int) (end int, integer bool) {
	if i < len(data) && data[i] == '-' {
		i++
	}
	switch {
	case i < len(data) && data[i] == '0':
		i++
	default:
		i = digitsEnd(data, i)
		if i < 0 {
			return -1, false
		}
	}
	integer = true
	if i < len(data) && data[i] == '.' {
		integer = false
		i = digitsEnd(data, i+1)
		if i < 0 {
			return -1, false
		}
	}
	if i < len(data) && data[i]|0x20 == 'e' {
		integer = false
		i++
		if i < len(data) && (data[i] == '+' || data[i] == '-') {
			i++
		}
		i = digitsEnd(data, i)
	}
	return i, integer
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

// hasWord reports whether a word starts at i.
func hasWord(b []byte, i int, word string) bool {
	return len(b)-i >= len(word) && string(b[i:i+len(word)]) == word
}
