// Package openapi compares the documents of /openapi/v3 with those of Kubernetes
// 1.33, word for word. Theirs are read from a Go module that carries them, which is
// downloaded and verified, but not built; so nothing depends on it.
//
// known.go lists what differs, each with its reason, and is held from both sides.
package openapi
