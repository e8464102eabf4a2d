package ciphers_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"testing"

	"binnacle/services/apiserver/internal/storage/encryption/ciphers"
)

var _ = []ciphers.Cipher{(*ciphers.CBC)(nil), (*ciphers.GCM)(nil), (*ciphers.Secretbox)(nil), (*ciphers.Derived)(nil)}

// allCiphers returns all ciphers by name, with the same key.
func allCiphers(t testing.TB) map[string]ciphers.Cipher {
	t.Helper()
	key := bytes.Repeat([]byte("k"), 32)
	cbc, err1 := ciphers.NewCBC(key)
	gcm, err2 := ciphers.NewGCM(key)
	box, err3 := ciphers.NewSecretbox(key)
	derived, err4 := ciphers.NewDerived(key)
	for _, err := range []error{err1, err2, err3, err4} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return map[string]ciphers.Cipher{"CBC": cbc, "GCM": gcm, "Secretbox": box, "Derived": derived}
}

// encryptPadded returns padded blocks encrypted by CBC with a zero IV and the key of allCiphers.
func encryptPadded(t testing.TB, blocks []byte) []byte {
	t.Helper()
	block, err := aes.NewCipher(bytes.Repeat([]byte("k"), 32))
	if err != nil {
		t.Fatal(err)
	}
	out := make([]byte, aes.BlockSize+len(blocks))
	cipher.NewCBCEncrypter(block, out[:aes.BlockSize]).CryptBlocks(out[aes.BlockSize:], blocks)
	return out
}

// TestOpenReturnsSealedValue checks values of many sizes. Seal appends to its destination.
func TestOpenReturnsSealedValue(t *testing.T) {
	for name, c := range allCiphers(t) {
		for size := range 50 {
			value := bytes.Repeat([]byte("v"), size)
			sealed, err := c.Seal([]byte("before"), value, []byte("of"))
			encrypted, ok := bytes.CutPrefix(sealed, []byte("before"))
			if err != nil || !ok {
				t.Fatalf("%s: got %q, %v, want a value with the prefix", name, sealed, err)
			}
			if got, err := c.Open(encrypted, []byte("of")); !bytes.Equal(got, value) || err != nil {
				t.Errorf("%s: %d bytes: got %q, %v, want %q", name, size, got, err, value)
			}
		}
	}
}

// TestOpenErrorsMatchKubernetes checks the errors for invalid data.
func TestOpenErrorsMatchKubernetes(t *testing.T) {
	const (
		short    = "the stored data was shorter than the required size"
		unpadded = "invalid PKCS7 data (empty or not padded)"
		padding  = "invalid padding on input"
		unsigned = "cipher: message authentication failed"
		box      = "output array was not large enough for encryption"
	)
	nothing := make([]byte, 100)
	last := func(b ...byte) []byte { return append(make([]byte, aes.BlockSize-len(b)), b...) }
	ciphersByName := allCiphers(t)
	for _, test := range []struct {
		cipher string
		sealed []byte
		want   string
	}{
		{cipher: "CBC", want: short},
		{cipher: "CBC", sealed: nothing[:15], want: short},
		{cipher: "CBC", sealed: nothing[:16], want: unpadded},
		{cipher: "CBC", sealed: nothing[:17], want: "the stored data is not a multiple of the block size"},
		{cipher: "CBC", sealed: encryptPadded(t, last(0)), want: unpadded},
		{cipher: "CBC", sealed: encryptPadded(t, last(17)), want: unpadded},
		{
			cipher: "CBC",
			sealed: encryptPadded(t, last(2, 3, 3)),
			want:   padding,
		},
		{cipher: "CBC", sealed: encryptPadded(t, last(1))},
		{cipher: "CBC", sealed: encryptPadded(t, bytes.Repeat([]byte{16}, 16))},
		{cipher: "GCM", want: short},
		{cipher: "GCM", sealed: nothing[:11], want: short},
		{cipher: "GCM", sealed: nothing[:12], want: unsigned},
		{
			cipher: "GCM",
			sealed: nothing,
			want:   unsigned,
		},
		{cipher: "Secretbox", want: short},
		{cipher: "Secretbox", sealed: nothing[:39], want: short},
		{cipher: "Secretbox", sealed: nothing[:40], want: box},
		{
			cipher: "Secretbox",
			sealed: nothing,
			want:   box,
		},
		{cipher: "Derived", want: short},
		{cipher: "Derived", sealed: nothing[:31], want: short},
		{cipher: "Derived", sealed: nothing[:43], want: short},
		{
			cipher: "Derived",
			sealed: nothing,
			want:   unsigned,
		},
	} {
		got, err := ciphersByName[test.cipher].Open(test.sealed, nil)
		message := ""
		if err != nil {
			message = err.Error()
		}
		if message != test.want || err != nil && got != nil {
			t.Errorf("%s: %d bytes: got %q, %v, want %s", test.cipher, len(test.sealed), got, err, test.want)
		}
	}
}

// TestInvalidKeySizesAreRejected checks all ciphers.
func TestInvalidKeySizesAreRejected(t *testing.T) {
	for name, make := range map[string]func([]byte) error{
		"CBC":       func(k []byte) error { _, err := ciphers.NewCBC(k); return err },
		"GCM":       func(k []byte) error { _, err := ciphers.NewGCM(k); return err },
		"Secretbox": func(k []byte) error { _, err := ciphers.NewSecretbox(k); return err },
		"Derived":   func(k []byte) error { _, err := ciphers.NewDerived(k); return err },
	} {
		for _, size := range []int{0, 15, 31} {
			if make(bytes.Repeat([]byte("k"), size)) == nil {
				t.Errorf("%s: key of %d bytes: got no error, want one", name, size)
			}
		}
	}
}
