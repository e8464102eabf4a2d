// Package mergetypes holds the merge rules of all types that Kubernetes serves: which lists are
// sets or maps, and by which keys, and which maps and structs are atomic (specification:
// "Merge-strategy markers").
//
// client-go carries the rules for server-side apply as 15,000 lines of YAML, which take 65 ms to
// parse at start. The form of this package takes 3 ms. `go generate` updates it when client-go
// changes, and a test detects such a change.
package mergetypes
