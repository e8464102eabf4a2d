// Package openapi describes the API in OpenAPI v2 (/openapi/v2, one document)
// and v3 (/openapi/v3, an index and a document per group version), from the
// declarations of package registry and the Go types themselves
// (specification: "OpenAPI").
//
// A document is made in steps, each in its own files:
//
//	Go types      → schemas     models.go, values.go, and package typefacts
//	declarations  → operations  operations.go, connect.go, parameters.go, names.go
//	both          → documents   v2.go, v3.go
//	documents     → bytes       document.go, index.go, serve.go
//
// Nothing is made before it is asked for, and then once for all who wait for it
// (shared.go): beside their requests, in one of few turns, while others have their
// seats. What definitions of many versions say is read once for the documents that are
// made together (reading.go). What is kept of a document is its
// compressed bytes and their hash; the schemas are dropped. The set of group
// versions is an immutable snapshot: Replace adds custom resources to the
// built-in ones, and keeps the documents that did not change. The mux of package
// server calls ServeHTTP.
package openapi
