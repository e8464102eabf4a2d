// Package apply tracks the ownership of fields in metadata.managedFields, and merges apply patches
// (specification: "Field ownership (server-side apply) rules").
//
// A Manager does so for one kind and one path: that of the object itself or that of a subresource.
// Update records the fields that a create, an update or a patch changed. Apply merges an apply
// patch into the live object, or returns a conflict if another manager owns a field that the patch
// changes. Package writes calls both on decoded, defaulted objects, before admission.
//
//	fields.go     the managers, and the fields that a path does not change
//	types.go      merge rules of Go types, derived on first use
//	shape.go      a Go type and its merge rules, compiled for comparisons
//	compare.go    the fields that differ between two Go values; documentdiff.go
//	              for objects without a Go type, types.go for unusual ones of
//	              these, equal.go for whether any field differs
//	managed.go    managedFields ⇄ sets of fields; fields.go caches parsed sets
//	update.go     effect of an update on the sets
//	apply.go      effect of an apply on the object and the sets
//	update.go  migration from client-side apply
//	managed.go   the 409 of an apply
//	form.go    objects and sets of other versions
//
// Sets of fields are shared and never changed in place. The package's only state is the derived
// merge rules and a bounded number of parsed sets. Managers are safe for concurrent use.
package apply
