package jsoniter

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is the limit of nested objects and arrays, as in json-iterator.
const maxDepth = 10000

// Iterator reads JSON values one after the other. After an error, methods return zero values.
type Iterator struct {
	// Error is the first error.
	Error error
	data  []byte
	pos   int // of the next byte
	depth int // of open objects and arrays
}

// NewIterator returns an iterator without input.
func NewIterator(API) *Iterator { return &Iterator{} }

// Parse returns an iterator over everything that r delivers.
func Parse(_ API, r io.Reader, _ int) *Iterator {
	data, err := io.ReadAll(r)
	return &Iterator{data: data, Error: err}
}

// Pool returns a pool of iterators.
func (it *Iterator) Pool() *IteratorPool { return &IteratorPool{} }

// ReportError records an error at the current position, unless there is one already.
func (it *Iterator) ReportError(operation, message string) {
	if it.Error != nil {
		return
	}
	excerpt := func(n int) []byte { return it.data[max(it.pos-n, 0):min(it.pos+n, len(it.data))] }
	it.Error = fmt.Errorf("%s: %s, error found in #%d byte of ...|%s|..., bigger context ...|%s|...",
		operation, message, min(it.pos, 10), excerpt(10), excerpt(50))
}

// peek returns the next byte that is not white space, or 0 at the end and after an error.
func (it *Iterator) peek() byte {
	if it.Error != nil {
		return 0
	}
	for ; it.pos < len(it.data); it.pos++ {
		switch c := it.data[it.pos]; c {
		case ' ', '\n', '\t', '\r':
		default:
			return c
		}
	}
	return 0
}

// next is like peek, but also consumes the byte.
func (it *Iterator) next() byte {
	c := it.peek()
	if it.pos < len(it.data) {
		it.pos++
	}
	return c
}

// Read returns the next value. Numbers are float64.
func (it *Iterator) Read() any {
	switch c := it.peek(); c {
	case '"':
		return it.readString()
	case '{':
		out := map[string]any{}
		it.ReadMapCB(func(it *Iterator, name string) bool {
			out[name] = it.Read()
			return it.Error == nil
		})
		return out
	case '[':
		out := []any{}
		it.readArray(func() { out = append(out, it.Read()) })
		return out
	case 't':
		return it.readLiteral("true")
	case 'f':
		return !it.readLiteral("false")
	case 'n':
		it.readLiteral("null")
		return nil
	default:
		f, err := strconv.ParseFloat(string(it.readNumber()), 64)
		if err != nil {
			it.ReportError("Read", err.Error())
		}
		return f
	}
}

// Skip skips the next value.
func (it *Iterator) Skip() {
	switch it.peek() {
	case '"':
		it.readString()
	case '{':
		it.ReadMapCB(func(it *Iterator, _ string) bool {
			it.Skip()
			return it.Error == nil
		})
	case '[':
		it.readArray(it.Skip)
	case 't':
		it.readLiteral("true")
	case 'f':
		it.readLiteral("false")
	case 'n':
		it.readLiteral("null")
	default:
		it.readNumber()
	}
}

// ReadObjectCB calls read for each field of an object, which consumes the value, until read returns
// false. null has no fields. It returns false after an error, and if read did.
func (it *Iterator) ReadObjectCB(read func(it *Iterator, name string) bool) bool {
	return it.ReadMapCB(read)
}

// ReadMapCB is the same as ReadObjectCB.
func (it *Iterator) ReadMapCB(read func(it *Iterator, name string) bool) bool {
	switch c := it.peek(); c {
	case 'n':
		return it.readLiteral("null")
	case '{':
		it.pos++
	default:
		it.next()
		it.ReportError("ReadMapCB", "expect { or n, but found "+string([]byte{c}))
		return false
	}
	if !it.enter() {
		return false
	}
	defer it.leave()
	if it.peek() == '}' {
		it.pos++
		return true
	}
	for {
		name := it.readString()
		if c := it.next(); c != ':' {
			it.ReportError("ReadMapCB", "expect : after object field, but found "+string([]byte{c}))
		}
		if it.Error != nil || !read(it, name) {
			return false
		}
		switch it.next() {
		case ',':
		case '}':
			return it.Error == nil
		default:
			it.ReportError("ReadMapCB", "object not ended with }")
			return false
		}
	}
}

// readArray calls read for each element of an array, which consumes it.
func (it *Iterator) readArray(read func()) {
	it.pos++
	if !it.enter() {
		return
	}
	defer it.leave()
	if it.peek() == ']' {
		it.pos++
		return
	}
	for it.Error == nil {
		read()
		switch it.next() {
		case ',':
		case ']':
			return
		default:
			it.ReportError("ReadArray", "array not ended with ]")
		}
	}
}

// enter reports whether a further level is allowed.
func (it *Iterator) enter() bool {
	if it.depth++; it.depth > maxDepth {
		it.ReportError("incrementDepth", "exceeded max depth")
	}
	return it.Error == nil
}

func (it *Iterator) leave() { it.depth-- }

// readLiteral consumes a literal and reports whether it is the expected one.
func (it *Iterator) readLiteral(want string) bool {
	if end := it.pos + len(want); end <= len(it.data) && string(it.data[it.pos:end]) == want {
		it.pos = end
		return true
	}
	it.ReportError("Read", "expect "+want)
	return false
}

// readNumber consumes a number and returns its text.
func (it *Iterator) readNumber() []byte {
	if it.Error != nil {
		return nil
	}
	start := it.pos
	for it.pos < len(it.data) {
		c := it.data[it.pos]
		if (c < '0' || c > '9') && c != '-' && c != '+' && c != '.' && c != 'e' && c != 'E' {
			break
		}
		it.pos++
	}
	text := it.data[start:it.pos]
	if !json.Valid(text) {
		it.ReportError("Read", fmt.Sprintf("%q is not a value", text))
	}
	return text
}

// readString consumes a string and returns its value.
func (it *Iterator) readString() string {
	if c := it.next(); c != '"' {
		it.ReportError("ReadString", `expects " or n, but found `+string([]byte{c}))
		return ""
	}
	start := it.pos
	for ; it.pos < len(it.data); it.pos++ {
		switch c := it.data[it.pos]; {
		case c == '"':
			it.pos++
			return string(it.data[start : it.pos-1])
		case c == '\\':
			return it.readEscapedString(append([]byte(nil), it.data[start:it.pos]...))
		case c < ' ':
			it.ReportError("ReadString", fmt.Sprintf("invalid control character found: %d", c))
			return ""
		}
	}
	it.ReportError("ReadString", "unexpected end of input")
	return ""
}

// readEscapedString consumes the rest of a string that begins with read.
func (it *Iterator) readEscapedString(read []byte) string {
	for it.pos < len(it.data) && it.Error == nil {
		c := it.data[it.pos]
		it.pos++
		switch {
		case c == '"':
			return string(read)
		case c == '\\':
			read = it.readEscape(read)
		case c < ' ':
			it.ReportError("ReadString", fmt.Sprintf("invalid control character found: %d", c))
		default:
			read = append(read, c)
		}
	}
	it.ReportError("ReadString", "unexpected end of input")
	return ""
}

// readEscape consumes the rest of an escape sequence and appends its value.
func (it *Iterator) readEscape(read []byte) []byte {
	if it.pos == len(it.data) {
		return read
	}
	c := it.data[it.pos]
	it.pos++
	switch c {
	case '"', '\\', '/':
		return append(read, c)
	case 'b':
		return append(read, '\b')
	case 'f':
		return append(read, '\f')
	case 'n':
		return append(read, '\n')
	case 'r':
		return append(read, '\r')
	case 't':
		return append(read, '\t')
	case 'u':
		r := it.readUnicode()
		if utf16.IsSurrogate(r) && it.pos+1 < len(it.data) && it.data[it.pos] == '\\' && it.data[it.pos+1] == 'u' {
			after := it.pos
			it.pos += 2
			if pair := utf16.DecodeRune(r, it.readUnicode()); pair != utf8.RuneError {
				return utf8.AppendRune(read, pair)
			}
			it.pos = after
		}
		return utf8.AppendRune(read, r) // a lone surrogate becomes the replacement character
	}
	it.ReportError("readEscapedChar", `invalid escape char after \`)
	return read
}

// readUnicode consumes four hexadecimal digits.
func (it *Iterator) readUnicode() rune {
	if it.pos+4 > len(it.data) {
		it.ReportError("readU4", "unexpected end of input")
		return 0
	}
	n, err := strconv.ParseUint(string(it.data[it.pos:it.pos+4]), 16, 16)
	if err != nil {
		it.ReportError("readU4", err.Error())
	}
	it.pos += 4
	return rune(n)
}
