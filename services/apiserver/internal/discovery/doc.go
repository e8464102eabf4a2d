// Package discovery tells clients what is served: the documents at /api, /apis
// and below them down to the resources of a group version, both one by one and
// aggregated into one document (specification: "Discovery"), and /version and
// the list of paths at /.
//
// It owns an immutable snapshot of all groups. The built-in ones come from the
// catalog; custom resources and aggregated APIs are added by Replace, which
// puts a new snapshot in place of the old one, so that a request sees either
// all of a change or nothing of it. Documents are made from a snapshot when
// they are first asked for, and their bytes are kept as long as the snapshot.
//
// The mux of package server calls the Serve methods; whoever knows of dynamic
// groups calls Replace.
package discovery
