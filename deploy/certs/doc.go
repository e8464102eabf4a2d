// Package certs creates and renews the certificates and keys of a suite in one
// folder: one CA per purpose (clients of the API, serving certificates of the
// services, etcd, NATS, front proxies, kubelets), the certificates of each program,
// and the key pair that signs service account tokens.
//
// Each program has a folder of its own. The folder is all that is mounted into its
// container or copied into its Secret: certificates with their keys, and the CA
// certificates that the program trusts. The keys of the CAs are in the folder ca,
// which no program needs. specs.go lists the content of each folder; Layout names
// the files.
//
// Ensure is idempotent. It keeps each certificate that its CA signed, that carries
// the wanted names and that does not expire soon, and creates the rest. It never
// replaces a CA that has signed certificates, unless Options.NewCA is set. A CA
// whose key is kept elsewhere is named in Options.ExternalCAs; Ensure writes signing
// requests for its certificates.
//
// Check reports the state and the expiry of all certificates. Rotate replaces CAs
// in three steps without an interruption.
package certs
