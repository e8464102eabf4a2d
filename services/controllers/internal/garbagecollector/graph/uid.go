package graph

import (
	"crypto/sha256"
	"encoding/hex"

	"k8s.io/apimachinery/pkg/types"
)

// uid is the uid of an object in 16 bytes: the bytes of a canonical UUID, or the first bytes of the
// SHA-256 hash of any other text. A types.UID takes four times as much memory.
type uid [16]byte

// hyphenPositions holds the positions of the hyphens of a UUID.
var hyphenPositions = [...]int{8, 13, 18, 23}

const uuidLen = 36

// packUID returns a uid in 16 bytes, and whether canonicalUUID restores the text from it.
func packUID(text types.UID) (id uid, canonical bool) {
	if len(text) == uuidLen {
		var digits [32]byte
		d := digits[:0]
		from := 0
		for _, hyphen := range hyphenPositions {
			d = append(d, text[from:hyphen]...)
			from = hyphen + 1
		}
		d = append(d, text[from:]...)
		if _, err := hex.Decode(id[:], d); err == nil && id.canonicalUUID() == text {
			return id, true
		}
	}
	sum := sha256.Sum256([]byte(text))
	copy(id[:], sum[:])
	return id, false
}

// canonicalUUID formats the bytes as a UUID: lower-case digits in five groups.
func (u uid) canonicalUUID() types.UID {
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

// keepNonCanonical stores the text of a known node's uid, if it is not a canonical UUID and so
// cannot be restored from the node.
func (g *Graph) keepNonCanonical(text types.UID) {
	if u, canonical := packUID(text); !canonical && g.nodes[u] != nil {
		g.nonCanonical[u] = text
	}
}

// originalUID returns the uid as the API server has it.
func (g *Graph) originalUID(id uid) types.UID {
	if text, ok := g.nonCanonical[id]; ok {
		return text
	}
	return id.canonicalUUID()
}
