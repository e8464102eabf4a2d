// Package ciphers turns values into bytes that only who has a key can read, in the
// layouts of Kubernetes: what its API server wrote is read here, and the other way
// round. It knows keys and bytes alone: which key is for what, and where values are
// stored, is the affair of package encryption, which calls it, and of encryption/kms.
//
//	CBC        16 bytes of chance, AES-CBC with PKCS #7 padding; bound to nothing
//	GCM        12 bytes of chance, AES-GCM; bound to the associated data
//	Secretbox  24 bytes of chance, XSalsa20 and Poly1305; bound to nothing
//	Derived    32 bytes of chance, from which HKDF-SHA256 makes the key of a GCM that
//	           is used once
//
// A cipher has no state but its key. What is opened is never part of what was sealed.
// Errors say what is wrong in the words that clients know, and never what is in a value.
package ciphers
