// Package mergetypes has the merge rules of all types that Kubernetes serves: which lists are
// sets or maps, and by what keys, which maps and structs are atomic (specification:
// "Merge-strategy markers").
//
// They are those that client-go carries for apply, as 15,000 lines of YAML, which take 65 ms
// of a start to read. Here they are written down in a form that takes 3; `go generate` writes
// it anew when client-go has changed, which a test notices.
package mergetypes
