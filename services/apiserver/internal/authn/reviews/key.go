package reviews

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"sync"
)

// key of an answer.
type key [sha256.Size]byte

// keyer makes keys: a keyed hash, so that neither a dump of memory nor the time
// of a look-up tells of tokens.
type keyer struct{ hashes sync.Pool }

// hasher is taken from the pool for each key: it is made on every request.
type hasher struct {
	hash hash.Hash
	buf  []byte
}

// newKeyer draws the key of the hash.
func newKeyer() (*keyer, error) {
	secret := make([]byte, sha256.Size)
	if _, err := rand.Read(secret); err != nil {
		return nil, fmt.Errorf("draw a key: %w", err)
	}
	return &keyer{sync.Pool{New: func() any { return &hasher{hash: hmac.New(sha256.New, secret)} }}}, nil
}

// key of a token for some audiences.
func (k *keyer) key(token string, audiences []string) (out key) {
	h := k.hashes.Get().(*hasher)
	h.buf = appendSized(h.buf[:0], token)
	for _, a := range audiences {
		h.buf = appendSized(h.buf, a)
	}
	h.hash.Reset()
	h.hash.Write(h.buf)
	h.hash.Sum(out[:0])
	clear(h.buf)
	k.hashes.Put(h)
	return out
}

// appendSized appends a text so that where it ends cannot be mistaken.
func appendSized(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
