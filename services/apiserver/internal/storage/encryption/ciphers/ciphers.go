package ciphers

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/crypto/nacl/secretbox"
)

// Errors of undecryptable values, with the texts of Kubernetes.
var (
	ErrShort     = errors.New("the stored data was shorter than the required size")
	errBlocks    = errors.New("the stored data is not a multiple of the block size")
	errUnpadded  = errors.New("invalid PKCS7 data (empty or not padded)")
	errPadding   = errors.New("invalid padding on input")
	errSecretbox = errors.New("output array was not large enough for encryption")
)

// Cipher encrypts and decrypts values. The associated data is not stored. A cipher that binds
// values to it does not decrypt them with other associated data.
type Cipher interface {
	// Seal appends the encrypted value to dst.
	Seal(dst, value, associated []byte) ([]byte, error)
	// Open returns the decrypted value.
	Open(sealed, associated []byte) ([]byte, error)
}

// CBC is AES-CBC. It is not authenticated: a writer of the store can change values, mostly
// undetected. It exists for old values.
type CBC struct{ block cipher.Block }

// NewCBC takes a key of 16, 24 or 32 bytes.
func NewCBC(key []byte) (*CBC, error) {
	block, err := aes.NewCipher(key)
	return &CBC{block}, err
}

// Seal implements Cipher.
func (c *CBC) Seal(dst, value, _ []byte) ([]byte, error) {
	pad := aes.BlockSize - len(value)%aes.BlockSize
	start := len(dst)
	dst = slices.Grow(dst, aes.BlockSize+len(value)+pad)[:start+aes.BlockSize]
	iv := dst[start:]
	_, _ = rand.Read(iv) // never fails
	dst = append(dst, value...)
	for range pad {
		dst = append(dst, byte(pad))
	}
	body := dst[start+aes.BlockSize:]
	cipher.NewCBCEncrypter(c.block, iv).CryptBlocks(body, body) //nolint:staticcheck // the format is given
	return dst, nil
}

// Open implements Cipher.
func (c *CBC) Open(sealed, _ []byte) ([]byte, error) {
	if len(sealed) < aes.BlockSize {
		return nil, ErrShort
	}
	iv := sealed[:aes.BlockSize]
	body := sealed[aes.BlockSize:]
	if len(body)%aes.BlockSize != 0 {
		return nil, errBlocks
	}
	if len(body) == 0 {
		return nil, errUnpadded
	}
	out := make([]byte, len(body))
	cipher.NewCBCDecrypter(c.block, iv).CryptBlocks(out, body) //nolint:staticcheck // the format is given
	pad := int(out[len(out)-1])
	if pad == 0 || pad > len(out) {
		return nil, errUnpadded
	}
	for _, b := range out[len(out)-pad:] {
		if int(b) != pad {
			return nil, errPadding
		}
	}
	return out[: len(out)-pad : len(out)-pad], nil
}

// GCM is AES-GCM with random nonces. A key lasts for about two hundred thousand writes, after which
// it should be rotated.
type GCM struct{ aead cipher.AEAD }

// NewGCM takes a key of 16, 24 or 32 bytes.
func NewGCM(key []byte) (*GCM, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	return &GCM{aead}, err
}

// Seal implements Cipher.
func (c *GCM) Seal(dst, value, associated []byte) ([]byte, error) {
	start := len(dst)
	n := c.aead.NonceSize()
	dst = slices.Grow(dst, n+len(value)+c.aead.Overhead())[:start+n]
	nonce := dst[start:]
	_, _ = rand.Read(nonce) // never fails
	return c.aead.Seal(dst, nonce, value, associated), nil
}

// Open implements Cipher.
func (c *GCM) Open(sealed, associated []byte) ([]byte, error) {
	n := c.aead.NonceSize()
	if len(sealed) < n {
		return nil, ErrShort
	}
	return c.aead.Open(nil, sealed[:n], sealed[n:], associated)
}

// Sizes of a Secretbox in bytes.
const (
	secretboxKeySize   = 32
	secretboxNonceSize = 24
)

// Secretbox is XSalsa20 with Poly1305.
type Secretbox struct{ key [secretboxKeySize]byte }

// NewSecretbox takes a key of 32 bytes.
func NewSecretbox(key []byte) (*Secretbox, error) {
	if len(key) != secretboxKeySize {
		return nil, fmt.Errorf("a key of %d bytes: want %d", len(key), secretboxKeySize)
	}
	return &Secretbox{[secretboxKeySize]byte(key)}, nil
}

// Seal implements Cipher.
func (c *Secretbox) Seal(dst, value, _ []byte) ([]byte, error) {
	var nonce [secretboxNonceSize]byte
	_, _ = rand.Read(nonce[:]) // never fails
	return secretbox.Seal(append(dst, nonce[:]...), value, &nonce, &c.key), nil
}

// Open implements Cipher.
func (c *Secretbox) Open(sealed, _ []byte) ([]byte, error) {
	if len(sealed) < secretboxNonceSize+secretbox.Overhead {
		return nil, ErrShort
	}
	nonce := [secretboxNonceSize]byte(sealed)
	out, ok := secretbox.Open(nil, sealed[secretboxNonceSize:], &nonce, &c.key)
	if !ok {
		return nil, errSecretbox
	}
	return out, nil
}

const (
	// MinSeed is the minimum length of a seed, in bytes.
	MinSeed = 32
	// derivedInfoSize is the size in bytes of the random input from which a key is derived.
	derivedInfoSize = 32
	// derivedKeySize is the size of a derived key in bytes.
	derivedKeySize = 32
	// DerivedOverhead is the number of bytes that encryption adds to a value: the random input, and
	// the nonce and the tag of AES-GCM.
	DerivedOverhead = derivedInfoSize + 12 + 16
)

// Derived is AES-GCM with a separate key for each value, so a seed does not wear out.
type Derived struct{ seed string }

// NewDerived takes a seed of at least MinSeed bytes.
func NewDerived(seed []byte) (*Derived, error) {
	if len(seed) < MinSeed {
		return nil, fmt.Errorf("invalid seed length %d used for key generation", len(seed))
	}
	return &Derived{string(seed)}, nil
}

// deriveGCM returns the cipher of one value. info is the random input that is stored with the
// value.
func (c *Derived) deriveGCM(info []byte) (*GCM, error) {
	key, err := hkdf.Expand(sha256.New, []byte(c.seed), string(info), derivedKeySize)
	if err != nil {
		return nil, fmt.Errorf("derive a key: %w", err)
	}
	return NewGCM(key)
}

// Seal implements Cipher.
func (c *Derived) Seal(dst, value, associated []byte) ([]byte, error) {
	var info [derivedInfoSize]byte
	_, _ = rand.Read(info[:]) // never fails
	gcm, err := c.deriveGCM(info[:])
	if err != nil {
		return nil, err
	}
	return gcm.Seal(append(dst, info[:]...), value, associated)
}

// Open implements Cipher.
func (c *Derived) Open(sealed, associated []byte) ([]byte, error) {
	if len(sealed) < derivedInfoSize {
		return nil, ErrShort
	}
	gcm, err := c.deriveGCM(sealed[:derivedInfoSize])
	if err != nil {
		return nil, err
	}
	return gcm.Open(sealed[derivedInfoSize:], associated)
}
