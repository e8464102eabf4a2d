// Package apply keeps who owns which fields of an object, in
// metadata.managedFields, and merges what is applied
// (specification: "Field ownership (server-side apply) rules").
//
// A Manager does so for one kind through one path: the object's own or that of a
// sub-resource. Update records what a create, an update or a patch changed; Apply
// merges an apply patch into the live object and refuses it where somebody else
// owns what it changes. The endpoints call both on decoded, defaulted objects,
// before admission.
//
//	fields.go     the managers, and what a path does not change
//	types.go      how the fields of Go types are merged, learnt on first use
//	shape.go      a Go type and its merge rules, compiled for comparing
//	compare.go    the fields that differ between two Go values; documentdiff.go
//	              of those that have no Go type, typedcompare.go where these are
//	              unusual, equal.go whether any do
//	managed.go    managedFields ⇄ sets of fields; sets.go keeps parsed ones
//	update.go     what an update does to the sets
//	apply.go      what an apply does to object and sets
//	lastapplied.go  the way over from client-side apply
//	conflict.go   the 409 of an apply
//	convert.go    objects and sets of other versions
//
// Sets of fields are shared and never changed in place. The package keeps what
// it learnt of types and a bounded number of parsed sets, nothing else.
package apply
