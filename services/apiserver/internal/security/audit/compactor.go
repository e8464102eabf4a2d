package audit

import "unicode/utf8"

// compactor rewrites JSON that arrives in parts in the form of encoding/json: without space between values
// and with escaped markup characters. It does not validate the JSON.
type compactor struct {
	inString, escaped bool   // inside a string, and after a backslash there
	partial           string // the start of a character that continues in the next part
}

// Classes of bytes.
const (
	ordinary = iota
	space
	markupByte     // < > &
	quote          // "
	backslash      // \
	separatorStart // the first byte of U+2028 and U+2029
)

var classes = func() (c [256]uint8) {
	c[' '], c['\t'], c['\r'], c['\n'] = space, space, space, space
	c['<'], c['>'], c['&'] = markupByte, markupByte, markupByte
	c['"'], c['\\'], c[separator[0]] = quote, backslash, separatorStart
	return c
}()

const (
	separator = "\u2028"
	hexDigits = "0123456789abcdef"
)

// append appends the compacted next part to dst. After the last part of valid JSON nothing is pending.
func (t *compactor) append(dst, part []byte) []byte {
	if t.partial != "" {
		part = append([]byte(t.partial), part...)
		t.partial = ""
	}
	from := 0
	for i := 0; i < len(part); i++ {
		class := classes[part[i]]
		if class == ordinary {
			t.escaped = false
			continue
		}
		if !t.inString {
			if class == space {
				dst = append(dst, part[from:i]...)
				from = i + 1
			}
			t.inString = class == quote
			continue
		}
		escaped := t.escaped
		t.escaped = false
		switch class {
		case quote:
			t.inString = escaped
		case backslash:
			t.escaped = !escaped
		case markupByte:
			dst = append(append(dst, part[from:i]...), `\u00`...)
			dst = append(dst, hexDigits[part[i]>>4], hexDigits[part[i]&0xf])
			from = i + 1
		case separatorStart:
			rest := part[i:min(len(part), i+len(separator))]
			if !utf8.FullRune(rest) {
				t.partial = string(rest)
				return append(dst, part[from:i]...)
			}
			if r, n := utf8.DecodeRune(rest); r == '\u2028' || r == '\u2029' {
				dst = append(append(dst, part[from:i]...), `\u202`...)
				dst = append(dst, hexDigits[r&0xf])
				i += n - 1
				from = i + 1
			}
		}
	}
	return append(dst, part[from:]...)
}
