package audit

import "unicode/utf8"

// tidy writes JSON that comes in parts as encoding/json does: without blanks between values,
// and with escapes for what would look like markup. It does not look whether it is JSON.
type tidy struct {
	text, escaped bool   // within a text, and behind a backslash there
	split         string // a character that the parts have been cut within
}

// Classes of bytes.
const (
	ordinary = iota
	blank
	mark  // < > &
	quote // "
	slash // \
	wide  // how U+2028 and U+2029 begin
)

var classes = func() (c [256]uint8) {
	c[' '], c['\t'], c['\r'], c['\n'] = blank, blank, blank, blank
	c['<'], c['>'], c['&'] = mark, mark, mark
	c['"'], c['\\'], c[separator[0]] = quote, slash, wide
	return c
}()

const (
	separator = "\u2028"
	hexDigits = "0123456789abcdef"
)

// append appends the next part, and at the last nothing is missing if it was JSON.
func (t *tidy) append(dst, part []byte) []byte {
	if t.split != "" {
		part = append([]byte(t.split), part...)
		t.split = ""
	}
	from := 0
	for i := 0; i < len(part); i++ {
		class := classes[part[i]]
		if class == ordinary {
			t.escaped = false
			continue
		}
		if !t.text {
			if class == blank {
				dst = append(dst, part[from:i]...)
				from = i + 1
			}
			t.text = class == quote
			continue
		}
		escaped := t.escaped
		t.escaped = false
		switch class {
		case quote:
			t.text = escaped
		case slash:
			t.escaped = !escaped
		case mark:
			dst = append(append(dst, part[from:i]...), `\u00`...)
			dst = append(dst, hexDigits[part[i]>>4], hexDigits[part[i]&0xf])
			from = i + 1
		case wide:
			rest := part[i:min(len(part), i+len(separator))]
			if !utf8.FullRune(rest) {
				t.split = string(rest)
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
