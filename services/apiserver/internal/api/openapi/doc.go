// Package openapi describes the API in OpenAPI v2 (/openapi/v2, one document) and v3 (/openapi/v3,
// an index and a document per group version). The sources are the declarations of package registry
// and the Go types (specification: "OpenAPI").
//
// A document is built in steps, each in its own files:
//
//	Go types      → schemas     models.go, and package typefacts
//	definitions   → schemas     custom.go
//	declarations  → operations  operations.go, kindoperations.go
//	both          → documents   versions.go
//	documents     → bytes       document.go, serve.go
//
// A document is built when it is first requested, once for all requests that wait for it
// (shared.go). The build runs in its own goroutine, with a concurrency limit, while the requests
// release their seats. Only the compressed bytes of a document and their hash are kept.
//
// The set of group versions is an immutable snapshot (service.go). Replace adds custom resources to
// the built-in group versions, and keeps unchanged documents. The mux of package server calls
// ServeHTTP.
package openapi
