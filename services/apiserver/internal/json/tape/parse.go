package tape

import (
	"bytes"
	"strconv"
	"unicode/utf8"

	"binnacle/services/apiserver/internal/json/jsontext"
)

// maxCount is the largest count that entry.packed can hold.
const maxCount = 1<<24 - 1

// parser builds the tape of a document.
type parser struct {
	raw      []byte
	position int
	entries  []entry
	open     []Ref          // arrays and objects whose end was not read yet
	unclean  bool           // see Doc.unclean
	seen     map[string]Ref // keys of the current object
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
	doc := pool.Get().(*Doc)
	var open [32]Ref
	parsing := parser{raw: raw, entries: doc.entries[:0], open: open[:0], seen: doc.keys}
	if parsing.entries == nil {
		parsing.entries = make([]entry, 0, 64+len(raw)/12)
	}
	err := parsing.parseDocument()
	clear(parsing.seen)
	doc.raw = raw
	doc.entries = parsing.entries
	doc.unclean = parsing.unclean
	doc.keys = parsing.seen
	if err != nil {
		doc.Release()
		if err == errInvalid { // never wrapped
			err = syntaxError(raw)
		}
		return nil, err
	}
	return doc, nil
}

func (p *parser) skipSpace() {
	for p.position < len(p.raw) {
		switch p.raw[p.position] {
		case ' ', '\n', '\t', '\r':
			p.position++
		default:
			return
		}
	}
}

// parseDocument reads values until the outermost has ended. p.open holds the nesting, so that deep
// documents need no deep stack.
func (p *parser) parseDocument() error {
	for {
		p.skipSpace()
		opened, err := p.parseValue()
		if err != nil {
			return err
		}
		if opened {
			continue
		}
		done, err := p.closeContainers()
		if err != nil {
			return err
		}
		if done {
			return p.outOfRange
		}
	}
}

// parseValue reads a scalar or an empty array or object completely. For any other array or object,
// it reads the text before the first value inside, and returns opened.
func (p *parser) parseValue() (opened bool, err error) {
	if p.position >= len(p.raw) {
		return false, errInvalid
	}
	switch p.raw[p.position] {
	case '{':
		return p.startObject()
	case '[':
		return p.startArray()
	case '"':
		return false, p.parseString(String)
	case 't':
		return false, p.parseLiteral("true", True)
	case 'f':
		return false, p.parseLiteral("false", False)
	case 'n':
		return false, p.parseLiteral("null", Null)
	}
	return false, p.parseNumber()
}

// appendEntry adds a value or key without members whose text is raw[start:end].
func (p *parser) appendEntry(kind Kind, start, end int, flags uint8) {
	p.entries = append(p.entries, entry{
		start:  uint32(start),
		end:    uint32(end),
		next:   Ref(len(p.entries) + 1),
		packed: uint32(kind)<<4 | uint32(flags),
	})
}

// openContainer begins an array or object at the current character.
func (p *parser) openContainer(kind Kind) error {
	if len(p.open) >= MaxDepth {
		return errInvalid
	}
	p.open = append(p.open, Ref(len(p.entries)))
	p.appendEntry(kind, p.position, 0, 0)
	p.position++
	p.skipSpace()
	return nil
}

// startObject reads an object up to its first value. It returns false if the object is empty.
func (p *parser) startObject() (bool, error) {
	if err := p.openContainer(Object); err != nil {
		return false, err
	}
	if p.position < len(p.raw) && p.raw[p.position] == '}' {
		p.closeContainer()
		return false, nil
	}
	return true, p.parseKey()
}

// startArray reads the start of an array. It returns false if the array is empty.
func (p *parser) startArray() (bool, error) {
	if err := p.openContainer(Array); err != nil {
		return false, err
	}
	if p.position < len(p.raw) && p.raw[p.position] == ']' {
		p.closeContainer()
		return false, nil
	}
	return true, nil
}

// parseKey reads a key and its colon.
func (p *parser) parseKey() error {
	if p.position >= len(p.raw) || p.raw[p.position] != '"' {
		return errInvalid
	}
	if err := p.parseString(Key); err != nil {
		return err
	}
	p.skipSpace()
	if p.position >= len(p.raw) || p.raw[p.position] != ':' {
		return errInvalid
	}
	p.position++
	return nil
}

// closeContainer completes the innermost array or object at the current character.
func (p *parser) closeContainer() {
	ref := p.open[len(p.open)-1]
	p.open = p.open[:len(p.open)-1]
	p.position++
	tapeEntry := &p.entries[ref]
	tapeEntry.end = uint32(p.position)
	tapeEntry.next = Ref(len(p.entries))
	if tapeEntry.kind() == Object && tapeEntry.count() > 1 {
		p.markShadowed(ref)
	}
}

// closeContainers continues after a value. It closes the arrays and objects that end there, and
// stops before the next value. done is true at the end of the document.
func (p *parser) closeContainers() (done bool, err error) {
	for {
		p.skipSpace()
		if len(p.open) == 0 {
			if p.position < len(p.raw) {
				return false, errInvalid
			}
			return true, nil
		}
		tapeEntry := &p.entries[p.open[len(p.open)-1]]
		if tapeEntry.count() >= maxCount {
			return false, ErrTooLarge
		}
		tapeEntry.packed += 1 << 8
		if p.position >= len(p.raw) {
			return false, errInvalid
		}
		object := tapeEntry.kind() == Object
		c := p.raw[p.position]
		switch {
		case c == ',':
			p.position++
			p.skipSpace()
			if object {
				return false, p.parseKey()
			}
			return false, nil
		case c == '}' && object, c == ']' && !object:
			p.closeContainer()
		default:
			return false, errInvalid
		}
	}
}

// parseLiteral reads true, false or null.
func (p *parser) parseLiteral(w string, kind Kind) error {
	if !bytes.HasPrefix(p.raw[p.position:], []byte(w)) {
		return errInvalid
	}
	p.appendEntry(kind, p.position, p.position+len(w), 0)
	p.position += len(w)
	return nil
}

// parseNumber reads a number. A number that is out of range is reported only if the rest of the
// document has no syntax error. Integers of up to 300 digits always fit into a float64.
func (p *parser) parseNumber() error {
	start := p.position
	end, integer := jsontext.Number(p.raw, start)
	if end < 0 {
		return errInvalid
	}
	if data := p.raw[start:end]; (!integer || len(data) > 300) && p.outOfRange == nil {
		if _, err := strconv.ParseFloat(string(data), 64); err != nil {
			p.outOfRange = &rangeError{string(data)}
		}
	}
	p.appendEntry(Number, start, end, 0)
	p.position = end
	return nil
}

// parseString reads a string or key.
func (p *parser) parseString(kind Kind) error {
	start := p.position + 1
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
	p.appendEntry(kind, start, end-1, flags)
	p.position = end
	return nil
}
