package tape

import (
	"fmt"
	"strconv"
	"unicode/utf8"
)

// maxCount is the largest count that fits next to kind and flags.
const maxCount = 1<<24 - 1

type parser struct {
	raw     []byte
	at      int
	entries []entry
	open    []Ref // arrays and objects that have not ended
	unclean bool
	seen    map[string]Ref // keys of the current object
	// outOfRange is the error of a number that is too large.
	outOfRange error
}

// Parse reads a document. raw must not change while the document is in use.
// The error is a *SyntaxError or ErrTooLarge.
func Parse(raw []byte) (*Doc, error) {
	if len(raw) > MaxBytes {
		return nil, ErrTooLarge
	}
	d := pool.Get().(*Doc)
	var open [32]Ref
	p := parser{raw: raw, entries: d.entries[:0], open: open[:0], seen: d.keys}
	if p.entries == nil {
		p.entries = make([]entry, 0, 64+len(raw)/12)
	}
	err := p.document()
	clear(p.seen)
	d.raw, d.entries, d.unclean, d.keys = raw, p.entries, p.unclean, p.seen
	if err != nil {
		d.Release()
		return nil, err
	}
	return d, nil
}

func (p *parser) fail(format string, args ...any) error {
	return &SyntaxError{Problem: fmt.Sprintf(format, args...), Offset: p.at}
}

func (p *parser) unexpected(where string) error {
	if p.at >= len(p.raw) {
		return p.fail("unexpected end of JSON input")
	}
	return p.fail("invalid character %s %s", quoteByte(p.raw[p.at]), where)
}

// unexpectedWithin returns the error for a character within a literal. Like in Go's decoder, the
// end of the text counts as a space.
func (p *parser) unexpectedWithin(where string) error {
	c := byte(' ')
	if p.at < len(p.raw) {
		c = p.raw[p.at]
	}
	return p.fail("invalid character %s %s", quoteByte(c), where)
}

func quoteByte(c byte) string {
	switch c {
	case '\'':
		return `'\''`
	case '"':
		return `'"'`
	}
	s := strconv.Quote(string(rune(c)))
	return "'" + s[1:len(s)-1] + "'"
}

func (p *parser) space() {
	for p.at < len(p.raw) {
		switch p.raw[p.at] {
		case ' ', '\n', '\t', '\r':
			p.at++
		default:
			return
		}
	}
}

// document reads values until the outermost has ended. p.open holds the nesting, so that deep
// documents need no deep stack.
func (p *parser) document() error {
	for {
		p.space()
		opened, err := p.value()
		if err != nil {
			return err
		}
		if opened {
			continue
		}
		done, err := p.closeAll()
		if err != nil {
			return err
		}
		if done {
			return p.outOfRange
		}
	}
}

// value reads the beginning of a value. It reads a scalar or an empty array or object completely.
// Of another array or object it reads everything up to the first value within it, and returns
// opened.
func (p *parser) value() (opened bool, err error) {
	if p.at >= len(p.raw) {
		return false, p.unexpected("")
	}
	switch c := p.raw[p.at]; c {
	case '{':
		return p.object()
	case '[':
		return p.array()
	case '"':
		return false, p.text(String)
	case 't':
		return false, p.word("true", True)
	case 'f':
		return false, p.word("false", False)
	case 'n':
		return false, p.word("null", Null)
	default:
		if c == '-' || c >= '0' && c <= '9' {
			return false, p.number()
		}
		return false, p.unexpected("looking for beginning of value")
	}
}

func (p *parser) push(kind Kind, start, end int, flags uint8) {
	p.entries = append(p.entries, entry{
		start: uint32(start), end: uint32(end), next: Ref(len(p.entries) + 1), count: uint32(kind)<<4 | uint32(flags),
	})
}

func (p *parser) enter(kind Kind) error {
	if len(p.open) >= MaxDepth {
		return p.fail("exceeded max depth")
	}
	p.open = append(p.open, Ref(len(p.entries)))
	p.push(kind, p.at, 0, 0)
	p.at++
	p.space()
	return nil
}

func (p *parser) object() (bool, error) {
	if err := p.enter(Object); err != nil {
		return false, err
	}
	if p.at < len(p.raw) && p.raw[p.at] == '}' {
		p.leave()
		return false, nil
	}
	return true, p.key("looking for beginning of object key string")
}

func (p *parser) array() (bool, error) {
	if err := p.enter(Array); err != nil {
		return false, err
	}
	if p.at < len(p.raw) && p.raw[p.at] == ']' {
		p.leave()
		return false, nil
	}
	return true, nil
}

// key reads a key and its colon.
func (p *parser) key(where string) error {
	if p.at >= len(p.raw) || p.raw[p.at] != '"' {
		return p.unexpected(where)
	}
	if err := p.text(Key); err != nil {
		return err
	}
	p.space()
	if p.at >= len(p.raw) || p.raw[p.at] != ':' {
		return p.unexpected("after object key")
	}
	p.at++
	return nil
}

// leave ends the innermost array or object at the current character.
func (p *parser) leave() {
	r := p.open[len(p.open)-1]
	p.open = p.open[:len(p.open)-1]
	p.at++
	e := &p.entries[r]
	e.end, e.next = uint32(p.at), Ref(len(p.entries))
	if e.kind() == Object && e.count>>8 > 1 {
		p.markShadowed(r)
	}
}

// closeAll continues after a value. It ends all arrays and objects that end there, and stops at the
// next value or at the end of the document.
func (p *parser) closeAll() (done bool, err error) {
	for {
		p.space()
		if len(p.open) == 0 {
			if p.at < len(p.raw) {
				return false, p.unexpected("after top-level value")
			}
			return true, nil
		}
		e := &p.entries[p.open[len(p.open)-1]]
		if e.count>>8 >= maxCount {
			return false, ErrTooLarge
		}
		e.count += 1 << 8
		if p.at >= len(p.raw) {
			return false, p.unexpected("")
		}
		object := e.kind() == Object
		switch c := p.raw[p.at]; {
		case c == ',':
			p.at++
			p.space()
			if object {
				return false, p.key("looking for beginning of object key string")
			}
			return false, nil
		case c == '}' && object, c == ']' && !object:
			p.leave()
		case object:
			return false, p.unexpected("after object key:value pair")
		default:
			return false, p.unexpected("after array element")
		}
	}
}

func (p *parser) word(w string, kind Kind) error {
	for i := range len(w) {
		if p.at+i >= len(p.raw) || p.raw[p.at+i] != w[i] {
			p.at += i
			return p.unexpectedWithin(fmt.Sprintf("in literal %s (expecting %s)", w, quoteByte(w[i])))
		}
	}
	p.push(kind, p.at, p.at+len(w), 0)
	p.at += len(w)
	return nil
}

func (p *parser) number() error {
	start := p.at
	if p.raw[p.at] == '-' {
		p.at++
	}
	if !p.digits() {
		return p.unexpectedWithin("in numeric literal")
	}
	if p.raw[start] == '0' && p.at > start+1 || p.raw[start] == '-' && p.raw[start+1] == '0' && p.at > start+2 {
		p.at = start + 1
		if p.raw[start] == '-' {
			p.at++
		}
		return p.afterNumber()
	}
	fraction := false
	if p.at < len(p.raw) && p.raw[p.at] == '.' {
		p.at++
		fraction = true
		if !p.digits() {
			return p.unexpectedWithin("after decimal point in numeric literal")
		}
	}
	if p.at < len(p.raw) && p.raw[p.at]|0x20 == 'e' {
		p.at++
		fraction = true
		if p.at < len(p.raw) && (p.raw[p.at] == '+' || p.raw[p.at] == '-') {
			p.at++
		}
		if !p.digits() {
			return p.unexpectedWithin("in exponent of numeric literal")
		}
	}
	if fraction || p.at-start > 300 {
		if _, err := strconv.ParseFloat(string(p.raw[start:p.at]), 64); err != nil {
			p.tooFar(start)
		}
	}
	p.push(Number, start, p.at, 0)
	return nil
}

// tooFar records the first number that does not fit into a float64. Syntax errors in the rest of
// the text take precedence.
func (p *parser) tooFar(start int) {
	if p.outOfRange == nil {
		p.outOfRange = &SyntaxError{
			Problem: fmt.Sprintf("json: cannot unmarshal number %s into Go value of type float64", p.raw[start:p.at]), Offset: p.at, outOfRange: true,
		}
	}
}

// afterNumber returns the error for a character that cannot follow a number.
func (p *parser) afterNumber() error {
	switch {
	case len(p.open) == 0:
		return p.unexpected("after top-level value")
	case p.entries[p.open[len(p.open)-1]].kind() == Object:
		return p.unexpected("after object key:value pair")
	}
	return p.unexpected("after array element")
}

func (p *parser) digits() bool {
	start := p.at
	for p.at < len(p.raw) && p.raw[p.at] >= '0' && p.raw[p.at] <= '9' {
		p.at++
	}
	return p.at > start
}

// text reads a string or key.
func (p *parser) text(kind Kind) error {
	p.at++
	start := p.at
	var flags uint8
	for {
		for p.at < len(p.raw) && plain[p.raw[p.at]] {
			p.at++
		}
		if p.at >= len(p.raw) {
			return p.unexpected("")
		}
		switch c := p.raw[p.at]; {
		case c == '"':
			if flags&wide != 0 && !utf8.Valid(p.raw[start:p.at]) {
				flags |= malformed
				p.unclean = true
			}
			p.push(kind, start, p.at, flags)
			p.at++
			return nil
		case c == '\\':
			flags |= escaped
			if err := p.escape(); err != nil {
				return err
			}
		case c < 0x20:
			return p.unexpected("in string literal")
		default:
			flags |= wide
			p.at++
		}
	}
}

// plain holds the bytes of strings that need no special handling.
var plain = func() (t [256]bool) {
	for c := 0x20; c < 0x80; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

func (p *parser) escape() error {
	p.at++
	if p.at >= len(p.raw) {
		return p.unexpectedWithin("in string escape code")
	}
	switch p.raw[p.at] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		p.at++
		return nil
	case 'u':
		p.at++
		for range 4 {
			if p.at >= len(p.raw) || !hex(p.raw[p.at]) {
				return p.unexpectedWithin("in \\u hexadecimal character escape")
			}
			p.at++
		}
		return nil
	}
	return p.unexpected("in string escape code")
}

func hex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}
