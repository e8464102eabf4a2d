package audit

import (
	"encoding/hex"
	"math/rand/v2"
)

// NewID returns a new request id, a version 4 UUID. It is unique but not secret, so it does not need the
// system's random source.
func NewID() string {
	var id [16]byte
	for half := 0; half < len(id); half += 8 {
		for n, i := rand.Uint64(), 0; i < 8; i++ {
			id[half+i] = byte(n)
			n >>= 8
		}
	}
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	var text [36]byte
	hex.Encode(text[:8], id[:4])
	hex.Encode(text[9:13], id[4:6])
	hex.Encode(text[14:18], id[6:8])
	hex.Encode(text[19:23], id[8:10])
	hex.Encode(text[24:], id[10:])
	for _, i := range []int{8, 13, 18, 23} {
		text[i] = '-'
	}
	return string(text[:])
}
