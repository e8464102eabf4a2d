// Package ciphers encrypts values in the layouts of Kubernetes: values written by its API server
// can be read here, and vice versa. It handles only keys and bytes. The purpose of keys and the
// storage of values are up to package encryption, which calls it, and encryption/kms.
//
//	CBC        16 random bytes, AES-CBC with PKCS #7 padding; bound to nothing
//	GCM        12 random bytes, AES-GCM; bound to the associated data
//	Secretbox  24 random bytes, XSalsa20 and Poly1305; bound to nothing
//	Derived    32 random bytes, from which HKDF-SHA256 derives the key of a GCM
//	           that is used once
//
// A cipher has no state but its key. A decrypted value never shares memory with its encrypted form.
// Errors use texts known to clients, and never contain values.
package ciphers
