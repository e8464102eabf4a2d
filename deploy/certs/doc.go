// Package certs makes the certificates and keys of a suite on one machine: an
// authority for each door (clients of the API, what the services show to them,
// etcd, NATS, front proxies, kubelets), the certificates that each program shows, and the
// key pair that signs service account tokens.
//
// Each program has a folder of its own, which is all that is mounted into its
// container or put into its Secret: what it shows, with the keys, and the public
// certificates by which it knows others. The authorities' keys are in a folder
// that no program gets. specs.go says what each folder holds, Layout names the
// files.
//
// Ensure is idempotent. What is there, belongs to its CA, carries the wanted
// names and is valid for a while yet stays as it is; the rest is made. A CA
// that had to be made anew takes everything that it signed with it.
//
// It serves `make up` and whoever wants to try a setup with TLS; a production
// cluster has a PKI of its own.
package certs
