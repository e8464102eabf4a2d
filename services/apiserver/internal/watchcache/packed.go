package watchcache

import (
	"encoding/binary"
	"sync"

	"github.com/klauspost/compress/s2"
)

const (
	// packed marks entries whose value is compressed.
	packed = 1 << 63 // a bit of an entry's id
	// packedFrom is the least size of a value that is compressed, in bytes.
	packedFrom = 4 << 10
	// trailer is the length of the outline, behind that and the compressed value.
	trailer = 4
)

// room is where values are compressed.
var room = sync.Pool{New: func() any { return new([]byte) }}

// pack compresses the entry's value, if it is large and at most half of it is left then.
// The outline is kept beside it, unless it is the value. Nobody has seen the entry yet.
func (e *Entry) pack(outline []byte) {
	if len(e.stored) < packedFrom {
		return
	}
	if len(outline) > len(e.stored)/2 {
		outline = nil
	}
	scratch, _ := room.Get().(*[]byte)
	defer room.Put(scratch)
	small := s2.Encode(*scratch, e.bytes())
	*scratch = small[:cap(small)]
	if len(small) > len(e.stored)/2 {
		return
	}
	all := make([]byte, 0, len(small)+len(outline)+trailer)
	all = append(append(all, small...), outline...)
	e.stored = asText(binary.LittleEndian.AppendUint32(all, uint32(len(outline))))
	e.id |= packed
}

// unpacked is a value that pack compressed, in room if that is enough.
func unpacked(room, value []byte) []byte {
	out, err := s2.Decode(room[:cap(room)], value[:outlineAt(value)])
	if err != nil { // which nobody else had in hand; who decodes nothing tells so
		return nil
	}
	return out
}

// outlineAt is where the outline begins in what pack made.
func outlineAt(value []byte) int {
	end := len(value) - trailer
	return end - int(binary.LittleEndian.Uint32(value[end:]))
}

// Outline is what the resource's Outline makes of the value, where that is at hand, and
// else the value. It must not be changed.
func (e *Entry) Outline() []byte {
	if e.id&packed != 0 {
		all := e.bytes()
		if at, end := outlineAt(all), len(all)-trailer; at < end {
			return all[at:end:end]
		}
	}
	return e.Stored()
}
