package h2

import "errors"

// decodeChunk is the number of bytes of a header block that the decoder gets at a time, unless a
// field is larger.
const decodeChunk = 512

// decode decodes a fragment of a header block. The decoder gets complete fields only. For a partial
// field it would keep a buffer of that size until the connection closes.
func (b *headerBlock) decode(p []byte) error {
	if len(b.partial) > 0 {
		b.partial = append(b.partial, p...)
		p = b.partial
	}
	for n := 1; ; n++ {
		size := b.completeFields(p)
		if size == 0 && n == 1 && len(b.partial) > 0 {
			return nil // only a partial field is buffered, and a large field may arrive in many fragments
		}
		if size == 0 {
			break
		}
		if _, err := b.decoder.Write(p[:size]); err != nil {
			return err
		}
		p = p[size:]
	}
	b.partial = append(b.partial[:0], p...)
	return nil
}

// errTruncatedField reports a header block that ends inside a field.
var errTruncatedField = errors.New("unterminated header field")

// close ends a header block.
func (b *headerBlock) close() error {
	if len(b.partial) > 0 {
		return errTruncatedField
	}
	return b.decoder.Close()
}

// reset releases the memory of a closed header block. The connection may be idle for long, and the
// bytes are no longer reserved.
func (b *headerBlock) reset() {
	clear(b.fields)
	if b.fields = b.fields[:0]; cap(b.fields) > maxCachedNames {
		b.fields = nil
	}
	if b.partial == nil && b.bytes <= decodeChunk {
		return
	}
	b.partial = nil
	// The decoder keeps the last buffer that it got, so it gets a small one.
	b.decoder.SetEmitEnabled(false)
	_, _ = b.decoder.Write([]byte{0x82}) // an indexed field, which is not emitted
	_ = b.decoder.Close()
}

// completeFields returns the size of the complete fields at the start of p, up to about decodeChunk
// bytes. Invalid input counts as complete, so that the decoder returns the error.
func (b *headerBlock) completeFields(p []byte) int {
	at := 0
	for at < len(p) && at < decodeChunk {
		n := b.fieldLength(p[at:])
		if n == 0 {
			break
		}
		at += n
	}
	return at
}

// fieldLength returns the size of the first field or table size update, or 0 if it is incomplete
// (RFC 7541, "Binary Format").
func (b *headerBlock) fieldLength(p []byte) int {
	bits, texts := 4, 1
	switch {
	case p[0]&0x80 != 0:
		bits, texts = 7, 0
	case p[0]&0x40 != 0:
		bits = 6
	case p[0]&0x20 != 0:
		bits, texts = 5, 0
	}
	name, at := decodeInt(p, bits)
	if name == 0 && texts > 0 {
		texts = 2 // a literal name precedes the value
	}
	for ; at > 0 && texts > 0; texts-- {
		length, n := decodeInt(p[at:], 7)
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

// decodeInt decodes an integer with a prefix of the given number of bits. n is its size in bytes, 0
// if it is incomplete, or negative if it is too long (RFC 7541, "Integer Representation").
func decodeInt(p []byte, bits int) (value uint64, n int) {
	if len(p) == 0 {
		return 0, 0
	}
	most := uint64(1)<<bits - 1
	if value = uint64(p[0]) & most; value < most {
		return value, 1
	}
	for n = 1; n < len(p); n++ {
		if n > maxIntBytes {
			return 0, -1
		}
		value += uint64(p[n]&0x7f) << (7 * (n - 1))
		if p[n]&0x80 == 0 {
			return value, n + 1
		}
	}
	return 0, 0
}

// maxIntBytes is the number of bytes that may follow the prefix of an integer.
const maxIntBytes = 9
