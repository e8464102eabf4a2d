// Package discovery serves the discovery documents (specification: "Discovery"): /api, /apis and
// the paths below them down to the resources of a group version, both separately and aggregated
// into one document. It also serves /version and the list of paths at /.
//
// It owns an immutable snapshot of all groups. The built-in groups come from the catalog. Replace
// adds custom resources and aggregated APIs by a new snapshot, so that a request sees either all or
// nothing of a change. Documents are built from a snapshot on first use. Their bytes are kept as
// long as the snapshot.
//
// The mux of package server calls the Serve methods. The source of dynamic groups calls Replace.
package discovery
