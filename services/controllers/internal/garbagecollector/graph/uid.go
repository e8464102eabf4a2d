package graph

import (
	"crypto/sha256"
	"encoding/hex"

	"k8s.io/apimachinery/pkg/types"
)

// uid is a uid in 16 bytes: the bytes of a canonical UUID, or the first bytes of the hash of any other
// text.
type uid [16]byte

// hyphens holds the positions of the hyphens of a UUID.
var hyphens = [...]int{8, 13, 18, 23}

const uuidLen = 36

// packUID returns a uid in 16 bytes, and whether unpack restores the text.
func packUID(text types.UID) (u uid, canonical bool) {
	if len(text) == uuidLen {
		var digits [32]byte
		d := digits[:0]
		from := 0
		for _, hyphen := range hyphens {
			d = append(d, text[from:hyphen]...)
			from = hyphen + 1
		}
		d = append(d, text[from:]...)
		if _, err := hex.Decode(u[:], d); err == nil && u.unpack() == text {
			return u, true
		}
	}
	sum := sha256.Sum256([]byte(text))
	copy(u[:], sum[:])
	return u, false
}

// unpack returns the canonical UUID.
func (u uid) unpack() types.UID {
	var digits [32]byte
	hex.Encode(digits[:], u[:])
	data := make([]byte, 0, uuidLen)
	from := 0
	for _, at := range []int{8, 12, 16, 20} {
		data = append(data, digits[from:at]...)
		data = append(data, '-')
		from = at
	}
	return types.UID(append(data, digits[from:]...))
}

// keepText remembers the text of a node's uid that is no canonical UUID.
func (g *Graph) keepText(text types.UID) {
	if u, canonical := packUID(text); !canonical && g.nodes[u] != nil {
		g.nonCanonical[u] = text
	}
}

// text returns the uid as the API server has it.
func (g *Graph) text(u uid) types.UID {
	if text, ok := g.nonCanonical[u]; ok {
		return text
	}
	return u.unpack()
}
