package watchcache

import (
	"bytes"

	"github.com/klauspost/compress/s2"
)

const (
	// packed marks entries whose value is compressed.
	packed = 1 << 63
	// packedFrom is the least size of a value that is compressed, in bytes.
	packedFrom = 4 << 10
)

// pack compresses the entry's value, if it is large and at most half of it is left then.
// Nobody has seen the entry yet.
func (e *Entry) pack() {
	if len(e.stored) < packedFrom {
		return
	}
	if small := s2.Encode(nil, e.stored); len(small) <= len(e.stored)/2 {
		e.stored = bytes.Clone(small) // without the room that it was made in
		e.id |= packed
	}
}

// unpacked is a value that pack compressed.
func unpacked(value []byte) []byte {
	out, err := s2.Decode(nil, value)
	if err != nil { // which nobody else had in hand; who decodes nothing tells so
		return nil
	}
	return out
}
