// Package objects holds the versions of the objects of one resource in memory. It knows no kinds,
// no encodings and no store, and starts no goroutines. Package watchcache keeps one image and one
// log of changes for each resource, and its locks guard them.
//
//	Entry       one version of one object, immutable (entry.go), with its value in one of three
//	            forms (value.go) and its encodings (package encodings)
//	Selection   which objects a list or a watch selects (selection.go)
//	Image       all objects at one revision, in copy-on-write trees (image.go), with the indexes
//	            that queries use (query.go, index.go)
//	Log         a ring of recent changes (log.go)
//	Packer      packs the values of a resource with shared dictionaries (package valuedict)
//
// A copy of an image costs little and does not change with the original. An older image results
// from a newer one by undoing the changes of the log.
package objects
