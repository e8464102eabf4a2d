package h2

import "errors"

// piece is how many bytes of a list the decoder is given at a time, or a field that is larger.
const piece = 512

// read decodes a part of a list. The decoder gets whole fields only: for a partial field it would keep
// a buffer of that size as long as the connection lasts.
func (b *block) read(p []byte) error {
	if len(b.tail) > 0 {
		b.tail = append(b.tail, p...)
		p = b.tail
	}
	for n := 1; ; n++ {
		size := b.whole(p)
		if size == 0 && n == 1 && len(b.tail) > 0 {
			return nil // it has all of it, and a large field may come in very many parts
		}
		if size == 0 {
			break
		}
		if _, err := b.decoder.Write(p[:size]); err != nil {
			return err
		}
		p = p[size:]
	}
	b.tail = append(b.tail[:0], p...)
	return nil
}

// errCut is what is wrong with a list that ends in the middle of a field.
var errCut = errors.New("a header field that does not end")

// close ends a list.
func (b *block) close() error {
	if len(b.tail) > 0 {
		return errCut
	}
	return b.decoder.Close()
}

// end forgets a list that was closed: its connection lasts, and may have had more large ones than there
// is room for.
func (b *block) end() {
	clear(b.fields)
	if b.fields = b.fields[:0]; cap(b.fields) > usualNames {
		b.fields = nil
	}
	if b.tail == nil && b.came <= piece {
		return
	}
	b.tail = nil
	// The decoder holds on to what it was given last, so that is to be little.
	b.decoder.SetEmitEnabled(false)
	_, _ = b.decoder.Write([]byte{0x82}) // a field that everybody knows, of which nothing comes
	_ = b.decoder.Close()
}

// whole is how many bytes the first fields of a list take that are whole: some of them, or those that
// are a piece together. What nobody can read is whole: the decoder tells what is wrong with it.
func (b *block) whole(p []byte) int {
	at := 0
	for at < len(p) && at < piece {
		n := b.first(p[at:])
		if n == 0 {
			break
		}
		at += n
	}
	return at
}

// first is how many bytes the first field takes, or the change of the table's size that comes there;
// 0 when more of it is to come (RFC 7541, "Binary Format").
func (b *block) first(p []byte) int {
	bits, texts := 4, 1
	switch {
	case p[0]&0x80 != 0:
		bits, texts = 7, 0
	case p[0]&0x40 != 0:
		bits = 6
	case p[0]&0x20 != 0:
		bits, texts = 5, 0
	}
	name, at := number(p, bits)
	if name == 0 && texts > 0 {
		texts = 2 // its name is one
	}
	for ; at > 0 && texts > 0; texts-- {
		length, n := number(p[at:], 7)
		switch {
		case n == 0:
			return 0
		case n < 0, length > uint64(b.limit):
			return len(p)
		case uint64(len(p)-at-n) < length:
			return 0
		}
		at += n + int(length)
	}
	if at < 0 {
		return len(p)
	}
	return at
}

// number reads one of which the first byte has so many bits, and returns how many bytes it takes: 0
// when more are to come, less when they are too many (RFC 7541, "Integer Representation").
func number(p []byte, bits int) (value uint64, n int) {
	if len(p) == 0 {
		return 0, 0
	}
	most := uint64(1)<<bits - 1
	if value = uint64(p[0]) & most; value < most {
		return value, 1
	}
	for n = 1; n < len(p); n++ {
		if n > mostBytes {
			return 0, -1
		}
		value += uint64(p[n]&0x7f) << (7 * (n - 1))
		if p[n]&0x80 == 0 {
			return value, n + 1
		}
	}
	return 0, 0
}

// mostBytes of a number follow the first one.
const mostBytes = 9
