package jsontext

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strconv"
	"unicode/utf8"
	"unsafe"
)

// AppendString appends a string in quotes, as encoding/json writes it.
func AppendString(dst []byte, s string) []byte {
	return AppendBytes(dst, unsafe.Slice(unsafe.StringData(s), len(s)))
}

// AppendBytes appends the bytes of a string like AppendString.
func AppendBytes(dst, text []byte) []byte {
	if isPlain(text) {
		n := len(dst)
		dst = slices.Grow(dst, len(text)+2)[:n+len(text)+2]
		dst[n], dst[len(dst)-1] = '"', '"'
		copy(dst[n+1:], text)
		return dst
	}
	return append(appendEscaped(append(dst, '"'), text), '"')
}

// AppendContent appends a string like AppendString, without the quotes.
func AppendContent(dst []byte, s string) []byte {
	data := unsafe.Slice(unsafe.StringData(s), len(s))
	if isPlain(data) {
		return append(dst, data...)
	}
	return appendEscaped(dst, data)
}

// isPlain reports whether a string has no byte that encoding/json escapes or inspects.
func isPlain(text []byte) bool {
	if len(text) < 8 {
		return plainEnd(text, 0) == len(text)
	}
	for i := 0; i+8 < len(text); i += 8 {
		if nonPlainBits(binary.LittleEndian.Uint64(text[i:])) != 0 {
			return false
		}
	}
	return nonPlainBits(binary.LittleEndian.Uint64(text[len(text)-8:])) == 0
}

const hex = "0123456789abcdef"

// appendEscaped appends the content of a JSON string.
func appendEscaped(dst, data []byte) []byte {
	start := 0
	for i := 0; i < len(data); {
		c := data[i]
		if classes[c] == plain {
			i++
			continue
		}
		if c < utf8.RuneSelf {
			dst = append(dst, data[start:i]...)
			dst = appendEscape(dst, c)
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			dst = append(append(dst, data[start:i]...), `\ufffd`...)
			start = i + size
		case r == '\u2028' || r == '\u2029':
			dst = append(append(dst, data[start:i]...), `\u202`...)
			dst = append(dst, hex[r&0xf])
			start = i + size
		}
		i += size
	}
	return append(dst, data[start:]...)
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

// LoneSurrogate returns the first escape of one half of a surrogate pair, or nil. Decoders replace
// it by U+FFFD.
func LoneSurrogate(doc []byte) []byte {
	for i := 0; ; {
		n := bytes.IndexByte(doc[i:], '\\')
		if n < 0 {
			return nil
		}
		i += n
		if i+1 >= len(doc) {
			return nil
		}
		unit, ok := surrogate(doc[i:])
		switch {
		case !ok:
			i += 2 // the character after a backslash starts no escape
			continue
		case unit < firstLowSurrogate:
			if low, ok := surrogate(doc[min(i+6, len(doc)):]); ok && low >= firstLowSurrogate {
				i += 12
				continue
			}
		}
		return doc[i : i+6]
	}
}

// Bounds of the UTF-16 surrogates. A pair is a high surrogate, which is below firstLowSurrogate,
// and a low one.
const (
	firstSurrogate    = 0xd800
	firstLowSurrogate = 0xdc00
	afterSurrogates   = 0xe000
)

// surrogate returns the surrogate half that the escape at the start of data denotes.
func surrogate(data []byte) (unit uint64, ok bool) {
	if len(data) < 6 || data[0] != '\\' || data[1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(data[2:6]), 16, 16)
	return unit, err == nil && unit >= firstSurrogate && unit < afterSurrogates
}
