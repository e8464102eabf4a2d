// Package apply tracks the ownership of fields in metadata.managedFields, and merges apply patches
// (specification: "Field ownership (server-side apply) rules").
//
// A Manager does so for one kind and one path: the path of the object itself or of a subresource.
// Update records the fields that a create, an update or a patch changed. Apply merges an apply
// patch into the live object, or returns a conflict if another manager owns a field that the patch
// changes. Package writes calls both on decoded, defaulted objects, before admission.
//
//	fields.go        the managers, the fields that a path does not change, and a cache of parsed sets
//	types.go         merge rules of Go types, derived on first use
//	shape.go         a Go type and its merge rules, compiled for comparisons
//	compare.go       the fields that differ between two Go values
//	equal.go         whether any field differs between two Go values
//	documentdiff.go  the fields that differ between two objects without a Go type
//	documents.go     managedFields of objects without a Go type
//	managed.go       managedFields ⇄ sets of fields, and the 409 of an apply
//	update.go        effect of an update on the sets, and the migration from client-side apply
//	apply.go         effect of an apply on the object and the sets
//	form.go          objects and sets of other versions
//
// Sets of fields are shared and never changed in place. The package's only state is the derived
// merge rules and a bounded number of parsed sets. Managers are safe for concurrent use.
package apply
