package tape

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"

	"binnacle/services/apiserver/internal/json/jsontext"
)

// String returns the value of a string or key. It shares the document's memory if the text has no
// escapes.
func (d *Doc) String(r Ref) string {
	e := &d.entries[r]
	data := d.raw[e.start:e.end]
	if e.flags()&(escaped|malformed) != 0 {
		return string(unescape(data))
	}
	return unsafe.String(unsafe.SliceData(data), len(data))
}

// Runes returns the length of a string in code points.
func (d *Doc) Runes(ref Ref) int {
	tapeEntry := &d.entries[ref]
	f := tapeEntry.flags()
	switch {
	case f&(escaped|malformed) != 0:
		return utf8.RuneCountInString(d.String(ref))
	case f&wide != 0:
		return utf8.RuneCount(d.raw[tapeEntry.start:tapeEntry.end])
	}
	return int(tapeEntry.end - tapeEntry.start)
}

// unescape decodes the content of a string. Like in Go's decoder, invalid UTF-8 and lone surrogates
// become U+FFFD.
func unescape(data []byte) []byte {
	out := make([]byte, 0, len(data))
	for i := 0; i < len(data); {
		c := data[i]
		switch {
		case c == '\\':
			var r rune
			r, i = unescapeOne(data, i+1)
			out = utf8.AppendRune(out, r)
		case c < utf8.RuneSelf:
			out = append(out, c)
			i++
		default:
			r, n := utf8.DecodeRune(data[i:])
			out = utf8.AppendRune(out, r)
			i += n
		}
	}
	return out
}

// unescapeOne decodes the escape sequence at i, after the backslash. It returns the index after
// it.
func unescapeOne(data []byte, i int) (rune, int) {
	switch data[i] {
	case 'b':
		return '\b', i + 1
	case 'f':
		return '\f', i + 1
	case 'n':
		return '\n', i + 1
	case 'r':
		return '\r', i + 1
	case 't':
		return '\t', i + 1
	case 'u':
		r := hexRune(data[i+1:])
		i += 5
		if !utf16.IsSurrogate(r) {
			return r, i
		}
		if i+6 <= len(data) && data[i] == '\\' && data[i+1] == 'u' {
			if both := utf16.DecodeRune(r, hexRune(data[i+2:])); both != utf8.RuneError {
				return both, i + 6
			}
		}
		return utf8.RuneError, i
	}
	return rune(data[i]), i + 1
}

// hexRune decodes four hexadecimal digits.
func hexRune(b []byte) rune {
	var r rune
	for _, c := range b[:4] {
		switch {
		case c >= 'a':
			c -= 'a' - 10
		case c >= 'A':
			c -= 'A' - 10
		default:
			c -= '0'
		}
		r = r<<4 | rune(c)
	}
	return r
}

// Int returns the value of a number whose text is a 64-bit integer. It returns false for any other.
func (d *Doc) Int(r Ref) (int64, bool) {
	e := &d.entries[r]
	data := d.raw[e.start:e.end]
	if len(data) > 20 || bytes.ContainsAny(data, ".eE") {
		return 0, false
	}
	n, err := strconv.ParseInt(unsafe.String(unsafe.SliceData(data), len(data)), 10, 64)
	return n, err == nil
}

// Float returns the value of a number.
func (d *Doc) Float(r Ref) float64 {
	e := &d.entries[r]
	f, _ := strconv.ParseFloat(string(d.raw[e.start:e.end]), 64)
	return f
}

// Any decodes a value: map[string]any, []any, string, int64, float64, bool or
// nil.
func (d *Doc) Any(ref Ref) any {
	switch d.Kind(ref) {
	case False, True:
		return d.Kind(ref) == True
	case Number:
		if n, ok := d.Int(ref); ok {
			return n
		}
		return d.Float(ref)
	case String, Key:
		return strings.Clone(d.String(ref))
	case Array:
		list := make([]any, 0, d.Len(ref))
		for i, end := d.First(ref), d.Next(ref); i < end; i = d.Next(i) {
			list = append(list, d.Any(i))
		}
		return list
	case Object:
		members := make(map[string]any, d.Len(ref))
		for k, end := d.First(ref), d.Next(ref); k < end; k = d.Next(k + 1) {
			members[strings.Clone(d.String(k))] = d.Any(k + 1)
		}
		return members
	}
	return nil
}

// Equal reports whether two values are equal in the sense of reflect.DeepEqual after decoding. The
// order of keys does not matter; 1 and 1.0 differ.
func Equal(a *Doc, x Ref, other *Doc, y Ref) bool {
	kind := a.Kind(x)
	if kind != other.Kind(y) {
		return false
	}
	if bytes.Equal(a.Text(x), other.Text(y)) {
		return true
	}
	switch kind {
	case Number:
		return equalNumbers(a, x, other, y)
	case String:
		return a.String(x) == other.String(y)
	case Array:
		if a.Len(x) != other.Len(y) {
			return false
		}
		i := a.First(x)
		j := other.First(y)
		for end := a.Next(x); i < end; i, j = a.Next(i), other.Next(j) {
			if !Equal(a, i, other, j) {
				return false
			}
		}
		return true
	case Object:
		return equalObjects(a, x, other, y)
	}
	return true
}

func equalNumbers(a *Doc, x Ref, other *Doc, y Ref) bool {
	m, mInt := a.Int(x)
	n, nInt := other.Int(y)
	if mInt || nInt {
		return mInt && nInt && m == n
	}
	return a.Float(x) == other.Float(y)
}

func equalObjects(a *Doc, x Ref, other *Doc, y Ref) bool {
	if a.Len(x) != other.Len(y) {
		return false
	}
	for k, end := a.First(x), a.Next(x); k < end; k = a.Next(k + 1) {
		v := other.Find(y, a.String(k))
		if v == None || !Equal(a, k+1, other, v) {
			return false
		}
	}
	return true
}

// AppendCanonical appends a value in the form of Go's encoder: sorted keys, no spaces, and numbers
// in their shortest form.
func (d *Doc) AppendCanonical(out []byte, ref Ref) []byte {
	switch d.Kind(ref) {
	case Number:
		if n, ok := d.Int(ref); ok {
			return strconv.AppendInt(out, n, 10)
		}
		return appendFloat(out, d.Float(ref))
	case String:
		return jsontext.AppendString(out, d.String(ref))
	case Array:
		out = append(out, '[')
		for i, end := d.First(ref), d.Next(ref); i < end; i = d.Next(i) {
			if i > ref+1 {
				out = append(out, ',')
			}
			out = d.AppendCanonical(out, i)
		}
		return append(out, ']')
	case Object:
		keys := make([]Ref, 0, d.Len(ref))
		for key, end := d.First(ref), d.Next(ref); key < end; key = d.Next(key + 1) {
			if !d.IsShadowedKey(key) {
				keys = append(keys, key)
			}
		}
		slices.SortFunc(keys, func(a, b Ref) int { return strings.Compare(d.String(a), d.String(b)) })
		out = append(out, '{')
		for i, key := range keys {
			if i > 0 {
				out = append(out, ',')
			}
			out = jsontext.AppendString(out, d.String(key))
			out = append(out, ':')
			out = d.AppendCanonical(out, key+1)
		}
		return append(out, '}')
	}
	return append(out, d.Text(ref)...)
}

// appendFloat appends a float like Go's encoder, but writes negative zero as 0, as Kubernetes does.
func appendFloat(out []byte, number float64) []byte {
	if number == 0 {
		return append(out, '0')
	}
	format := byte('f')
	if abs := math.Abs(number); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	start := len(out)
	out = strconv.AppendFloat(out, number, format, -1, 64)
	// e-07 -> e-7
	if n := len(out); format == 'e' && n-start >= 4 && out[n-4] == 'e' && out[n-3] == '-' && out[n-2] == '0' {
		out[n-2] = out[n-1]
		out = out[:n-1]
	}
	return out
}
