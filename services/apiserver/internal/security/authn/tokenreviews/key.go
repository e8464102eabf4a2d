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

// cacheKey identifies a cached result.
type cacheKey [sha256.Size]byte

// keyHasher computes cache keys. A key is a keyed hash, so neither a memory dump nor the timing of
// lookups reveals tokens.
type keyHasher struct{ hashes sync.Pool }

// pooledHash is a hash and a buffer. It is pooled, because every request needs a key.
type pooledHash struct {
	hash   hash.Hash
	buffer []byte
}

// newKeyHasher returns a keyHasher with a random secret.
func newKeyHasher() (*keyHasher, error) {
	secret := make([]byte, sha256.Size)
	if _, err := rand.Read(secret); err != nil {
		return nil, fmt.Errorf("draw a key: %w", err)
	}
	return &keyHasher{sync.Pool{New: func() any { return &pooledHash{hash: hmac.New(sha256.New, secret)} }}}, nil
}

// keyOf returns the key of a token for some audiences.
func (k *keyHasher) keyOf(token string, audiences []string) (out cacheKey) {
	h := k.hashes.Get().(*pooledHash)
	h.buffer = appendSized(h.buffer[:0], token)
	for _, a := range audiences {
		h.buffer = appendSized(h.buffer, a)
	}
	h.hash.Reset()
	h.hash.Write(h.buffer)
	h.hash.Sum(out[:0])
	clear(h.buffer)
	k.hashes.Put(h)
	return out
}

// appendSized appends a text with its length, so that its end is unambiguous.
func appendSized(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
