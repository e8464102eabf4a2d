// Package patch decodes patches and applies them to objects. types.go lists the patch types; each
// is one strategy in a separate file:
//
//	jsonpatch.go    JSON patch (RFC 6902), on the JSON of the object
//	merge.go        merge patch (RFC 7386), on the object where possible, otherwise on its JSON
//	strategic.go    strategic merge patch, on the fields of the Go type that the patch names
//	serverside.go   server-side apply, in YAML or CBOR
//
// A Patch is immutable and may be applied several times, as a write does after a conflict. A Target
// describes the value to patch. It belongs to one attempt of a write. Package writes makes targets
// and applies patches; package handlers decodes patches.
package patch
