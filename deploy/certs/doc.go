// Package certs makes the certificates and keys of a suite on one machine: a
// CA, a front-proxy CA, serving and client certificates, and the key pair that
// signs service account tokens.
//
// Ensure is idempotent. What is there, belongs to its CA, carries the wanted
// names and is valid for a while yet stays as it is; the rest is made. A CA
// that had to be made anew takes everything that it signed with it.
//
// It serves `make up` and whoever wants to try a setup with TLS; a production
// cluster has a PKI of its own. The files are listed in Layout.
package certs
