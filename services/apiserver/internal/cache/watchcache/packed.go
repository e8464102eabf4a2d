package watchcache

import (
	"encoding/binary"
	"sync"

	"github.com/klauspost/compress/s2"
)

const (
	// packed marks entries whose value is compressed.
	packed = 1 << 63 // a bit of an entry's id
	// packedFrom is the minimum size of a value that is compressed, in bytes.
	packedFrom = 4 << 10
	// trailer is the size of the outline's length, which follows the compressed value and the
	// outline.
	trailer = 4
)

// room holds buffers for compression.
var room = sync.Pool{New: func() any { return new([]byte) }}

// pack compresses the value if it is large and shrinks to half or less. The outline is kept beside
// it, unless the outline is the value. The entry must not be published yet.
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

// unpacked decompresses a value of pack, into room if it fits.
func unpacked(room, value []byte) []byte {
	out, err := s2.Decode(room[:cap(room)], value[:outlineAt(value)])
	if err != nil { // unreachable: only pack writes these values; decoders report the empty value
		return nil
	}
	return out
}

// outlineAt returns where the outline begins in the output of pack.
func outlineAt(value []byte) int {
	end := len(value) - trailer
	return end - int(binary.LittleEndian.Uint32(value[end:]))
}

// Outline returns the outline of the value if it is stored, and the value otherwise. It must not be
// changed.
func (e *Entry) Outline() []byte {
	if e.id&packed != 0 {
		all := e.bytes()
		if at, end := outlineAt(all), len(all)-trailer; at < end {
			return all[at:end:end]
		}
	}
	return e.Stored()
}
