// Package openapi compares the documents of /openapi/v3 with those of Kubernetes 1.33. The latter
// come from a Go module that is downloaded and verified, but not built, so that it is not a
// dependency.
//
// known.go lists the accepted differences with their reasons. The tests fail for a difference that
// is not listed and for a listed one that does not exist.
package openapi
