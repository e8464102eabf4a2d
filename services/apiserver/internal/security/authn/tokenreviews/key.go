package tokenreviews

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"sync"
)

// key identifies a cached result.
type key [sha256.Size]byte

// keyer computes keys. They are a keyed hash, so neither a memory dump nor lookup timing reveals
// tokens.
type keyer struct{ hashes sync.Pool }

// hasher is pooled, because every request needs a key.
type hasher struct {
	hash hash.Hash
	buf  []byte
}

// newKeyer generates the secret of the hash.
func newKeyer() (*keyer, error) {
	secret := make([]byte, sha256.Size)
	if _, err := rand.Read(secret); err != nil {
		return nil, fmt.Errorf("draw a key: %w", err)
	}
	return &keyer{sync.Pool{New: func() any { return &hasher{hash: hmac.New(sha256.New, secret)} }}}, nil
}

// key returns the key of a token for some audiences.
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

// appendSized appends a text with its length, so that its end is unambiguous.
func appendSized(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
