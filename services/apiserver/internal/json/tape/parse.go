package tape

import (
	"bytes"
	"strconv"
	"unicode/utf8"

	"binnacle/services/apiserver/internal/json/jsontext"
)

// maxCount is the largest count that fits next to kind and flags.
const maxCount = 1<<24 - 1

// parser builds the tape of a document.
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
// The error is that of encoding/json for invalid JSON, or ErrTooLarge, or the one that IsOutOfRange
// recognizes.
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
	d.raw = raw
	d.entries = p.entries
	d.unclean = p.unclean
	d.keys = p.seen
	if err != nil {
		d.Release()
		if err == errInvalid { // never wrapped
			err = syntaxError(raw)
		}
		return nil, err
	}
	return d, nil
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

// value reads the start of a value. It reads a scalar or an empty array or object completely.
// Of another array or object it reads everything up to the first value within it, and returns
// opened.
func (p *parser) value() (opened bool, err error) {
	if p.at >= len(p.raw) {
		return false, errInvalid
	}
	switch p.raw[p.at] {
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
	}
	return false, p.number()
}

func (p *parser) push(kind Kind, start, end int, flags uint8) {
	p.entries = append(p.entries, entry{
		start: uint32(start),
		end:   uint32(end),
		next:  Ref(len(p.entries) + 1),
		count: uint32(kind)<<4 | uint32(flags),
	})
}

// openContainer begins an array or object at the current character.
func (p *parser) openContainer(kind Kind) error {
	if len(p.open) >= MaxDepth {
		return errInvalid
	}
	p.open = append(p.open, Ref(len(p.entries)))
	p.push(kind, p.at, 0, 0)
	p.at++
	p.space()
	return nil
}

func (p *parser) object() (bool, error) {
	if err := p.openContainer(Object); err != nil {
		return false, err
	}
	if p.at < len(p.raw) && p.raw[p.at] == '}' {
		p.closeContainer()
		return false, nil
	}
	return true, p.key()
}

func (p *parser) array() (bool, error) {
	if err := p.openContainer(Array); err != nil {
		return false, err
	}
	if p.at < len(p.raw) && p.raw[p.at] == ']' {
		p.closeContainer()
		return false, nil
	}
	return true, nil
}

// key reads a key and its colon.
func (p *parser) key() error {
	if p.at >= len(p.raw) || p.raw[p.at] != '"' {
		return errInvalid
	}
	if err := p.text(Key); err != nil {
		return err
	}
	p.space()
	if p.at >= len(p.raw) || p.raw[p.at] != ':' {
		return errInvalid
	}
	p.at++
	return nil
}

// closeContainer ends the innermost array or object at the current character.
func (p *parser) closeContainer() {
	r := p.open[len(p.open)-1]
	p.open = p.open[:len(p.open)-1]
	p.at++
	e := &p.entries[r]
	e.end = uint32(p.at)
	e.next = Ref(len(p.entries))
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
				return false, errInvalid
			}
			return true, nil
		}
		e := &p.entries[p.open[len(p.open)-1]]
		if e.count>>8 >= maxCount {
			return false, ErrTooLarge
		}
		e.count += 1 << 8
		if p.at >= len(p.raw) {
			return false, errInvalid
		}
		object := e.kind() == Object
		c := p.raw[p.at]
		switch {
		case c == ',':
			p.at++
			p.space()
			if object {
				return false, p.key()
			}
			return false, nil
		case c == '}' && object, c == ']' && !object:
			p.closeContainer()
		default:
			return false, errInvalid
		}
	}
}

func (p *parser) word(w string, kind Kind) error {
	if !bytes.HasPrefix(p.raw[p.at:], []byte(w)) {
		return errInvalid
	}
	p.push(kind, p.at, p.at+len(w), 0)
	p.at += len(w)
	return nil
}

// number parses a number. An out-of-range number is reported after the syntax of the rest.
func (p *parser) number() error {
	start := p.at
	end, integer := jsontext.Number(p.raw, start)
	if end < 0 {
		return errInvalid
	}
	if data := p.raw[start:end]; (!integer || len(data) > 300) && p.outOfRange == nil {
		if _, err := strconv.ParseFloat(string(data), 64); err != nil {
			p.outOfRange = &rangeError{string(data)} // syntax errors in the rest take precedence
		}
	}
	p.push(Number, start, end, 0)
	p.at = end
	return nil
}

// text reads a string or key.
func (p *parser) text(kind Kind) error {
	start := p.at + 1
	end, has := jsontext.String(p.raw, start)
	if end < 0 {
		return errInvalid
	}
	var flags uint8
	if has&jsontext.Escapes != 0 {
		flags |= escaped
	}
	if has&jsontext.Wide != 0 {
		flags |= wide
		if !utf8.Valid(p.raw[start : end-1]) {
			flags |= malformed
			p.unclean = true
		}
	}
	p.push(kind, start, end-1, flags)
	p.at = end
	return nil
}
