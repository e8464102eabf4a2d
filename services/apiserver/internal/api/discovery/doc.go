// Package discovery serves the discovery documents (specification: "Discovery"): /api, /apis and
// the paths below them down to the resources of a group version, both separately and aggregated
// into one document. It also serves /version and the list of paths at /.
//
// Documents holds an immutable snapshot of all groups. The built-in groups come from the catalog.
// Replace adds custom resources and the APIs of extension servers with a new snapshot, so that a
// request sees either all of a change or nothing of it. A document is encoded when it is first
// requested. The snapshot caches the encoded documents.
//
// The mux of package server calls the Serve methods, and package customdocs calls Replace.
package discovery
